-- include tending
-- Jobs are parked, and this claim could have had more: now and then it is looked whether that is as it should be. Where
-- others than Toril's workers hold seats, who do not tell when they are done, somebody has to come back for that.
local function look_after_groups(wake_at)
  if now - (tonumber(own[8] or nil) or 0) < N.glance then return wake_at end
  call('HSET', P .. K.toril, F.tended_at, NOW)
  groups.let_in_some = false
  groups.tend(N.glanced)
  if groups.let_in_some then return now end
  return groups.strangers and math.min(wake_at or now + N.glance, now + N.glance) or wake_at
end

-- The second half of an exchange: claim, then say what there is to say about it.
local wake_at, gate, waiting = false, false, nil
if want > 0 then
  promote()
  if groups.used() then groups.look_at_due() end
  if groups.let_in_some then moved, ready, prioritized = true, call('LLEN', P .. K.wait), call('ZCARD', P .. K.prioritized) end
  local size, shut, opens = gates(want)
  local last_fence = fence
  if size > 0 then take_some(size) end
  note_taken()
  count_starts(#taken, last_fence)
  running = running + #taken
  if ended_early > 0 then flush_endings() end
  groups.flush()
  if groups.let_in_some then moved = true end
  waiting = suspects
  if moved then ready, prioritized = call('LLEN', P .. K.wait), call('ZCARD', P .. K.prioritized) end
  if #taken < want then
    if shut and #taken == size then
      gate, wake_at = shut, opens or shut == 'rate' and now + rate.ms
    else
      wake_at = wake_time() or false
      if groups.any_parked() then gate, wake_at = 'groups', look_after_groups(wake_at) end
    end
  end
end

if #settled > 0 or #taken > 0 or ended_early > 0 then
  if ready + prioritized + running == 0 and call('ZCARD', P .. K.delayed) == 0 and not groups.any_parked() then event('drained') end
  if #taken == 0 then trim_events(meta[5]) end
end
if delayed_some then
  local due = call('ZRANGE', P .. K.delayed, 0, 0, 'WITHSCORES')
  if due[2] then call('ZADD', P .. K.marker, math.floor(due[2] / N.ties), '1') end
end

-- The marker tells those who sleep that there is more. Suspects do not count: who runs something cannot take them, and
-- would be woken again and again; but a mark that was set for them stays. Nor is one set while the rate is shut: whoever
-- finds it so comes back by the clock.
local open = not meta[1] and not (most_running and running >= most_running)
local worth, turns = open and gate ~= 'rate', groups.turns() > 0 or groups.is_due() or (groups.news and #taken == want)
if worth and (ready > suspects or prioritized > 0 or turns or (given_back and suspects > 0)) then
  call('ZADD', P .. K.marker, '0', '0')
elseif (worth and suspects == 0) or not open then
  call('ZREM', P .. K.marker, '0')
end
remember({verdicts, taken_ids, now, wake_at, gate, waiting or 0, unstarted})
return {verdicts, taken, now, wake_at, gate, waiting or 0, unstarted}
