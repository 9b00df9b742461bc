-- The second half of an exchange: claim, then say what there is to say about it.
local has_ended, wake_at, gate, suspects = #settled > 0, false, false, 0
if want > 0 then
  promote()
  local size, shut, opens = gates(want)
  fence = tonumber(call('HGET', P .. K.toril, F.claims) or 0)
  local last_fence = fence
  take_some(size)
  if #taken > 0 then
    local deadlines = {}
    for i = 1, #taken do deadlines[2 * i - 1], deadlines[2 * i] = deadline, taken_ids[i] end
    call('LPUSH', P .. K.active, unpack(taken_ids))
    call('ZADD', P .. K.deadlines, unpack(deadlines))
    call('HSET', P .. K.toril, F.claims, fence)
    count_starts(#taken, last_fence)
  end
  if #taken < want then
    if shut and #taken == size then gate, wake_at = shut, opens or false else wake_at = wake_time() or false end
  end
  suspects = suspects_left()
  has_ended = has_ended or ended_early > 0
  flush_endings()
end
if has_ended and call('LLEN', P .. K.wait) + call('LLEN', P .. K.active) + call('ZCARD', P .. K.prioritized)
    + call('ZCARD', P .. K.delayed) == 0 then
  event('drained')
end
if has_ended or #taken > 0 then trim_events(call('HGET', P .. K.meta, F.max_events)) end
if delayed_some then mark_due() end
mark_ready()
remember({verdicts, taken_ids, now, wake_at, gate, suspects})
return {verdicts, taken, now, wake_at, gate, suspects}
