-- The second half of an exchange: claim, then say what there is to say about it.
local wake_at, gate, waiting = false, false, nil
if want > 0 then
  promote()
  local size, shut, opens = gates(want)
  fence = tonumber(own[1] or nil) or 0
  local last_fence = fence
  if size > 0 then take_some(size) end
  if #taken > 0 then
    local deadlines = {}
    for i = 1, #taken do deadlines[2 * i - 1], deadlines[2 * i] = deadline, taken_ids[i] end
    call('LPUSH', P .. K.active, unpack(taken_ids))
    call('ZADD', P .. K.deadlines, unpack(deadlines))
    call('HSET', P .. K.toril, F.claims, fence)
    count_starts(#taken, last_fence)
    running = running + #taken
  end
  if ended_early > 0 then flush_endings() end
  waiting = suspects
  if moved then ready, prioritized = call('LLEN', P .. K.wait), call('ZCARD', P .. K.prioritized) end
  if #taken < want then
    if shut and #taken == size then
      gate, wake_at = shut, opens or shut == 'rate' and now + rate.ms
    else
      wake_at = wake_time() or false
    end
  end
end

local changed = #settled > 0 or #taken > 0 or ended_early > 0
if changed and ready + prioritized + running == 0 and call('ZCARD', P .. K.delayed) == 0 then event('drained') end
if changed and #taken == 0 then trim_events(meta[5]) end
if delayed_some then
  local due = call('ZRANGE', P .. K.delayed, 0, 0, 'WITHSCORES')
  if due[2] then call('ZADD', P .. K.marker, math.floor(due[2] / N.ties), '1') end
end

-- The marker tells those who sleep that there is more. Suspects do not count: who runs something cannot take them, and
-- would be woken again and again; but a mark that was set for them stays. Nor is one set while the rate is shut: whoever
-- finds it so comes back by the clock.
local open = not meta[1] and not (most_running and running >= most_running)
local worth = open and gate ~= 'rate'
if worth and (ready > suspects or prioritized > 0) then
  call('ZADD', P .. K.marker, '0', '0')
elseif (worth and suspects == 0) or not open then
  call('ZREM', P .. K.marker, '0')
end
remember({verdicts, taken_ids, now, wake_at, gate, waiting or 0, unstarted})
return {verdicts, taken, now, wake_at, gate, waiting or 0, unstarted}
