-- A job's place: its state, to the front, to the back, out; and the marker for idle workers.
-- needs line groups steps
local places = {sets = {
  {K.completed, 'completed'}, {K.failed, 'failed'}, {K.delayed, 'delayed'}, {K.prioritized, 'prioritized'},
  {K.waiting_children, 'waiting_children'},
}}

-- A job of a group takes its place in that: true. Others know nothing of groups.
function places.to_group(id, priority)
  local f = groups.used() and call('HMGET', P .. id, F.group, F.order)
  if f and f[1] then groups.admit(id, f[1], f[2], priority) end
  return f and f[1]
end

-- To the end of the line, or of its group.
function places.to_back(id, priority)
  if not places.to_group(id, priority) then line.push(id, priority) end
end

-- To the front of the line, or to its place in its group.
function places.to_front(id, priority)
  if places.to_group(id, priority) then return end
  if priority == 0 then
    call('RPUSH', P .. K.wait, id)
    return
  end
  local low = priority * N.priorities
  local first = call('ZRANGEBYSCORE', P .. K.prioritized, low, low + N.priorities - 1, 'WITHSCORES', 'LIMIT', 0, 1)
  if not first[2] then return line.push(id, priority) end
  call('ZADD', P .. K.prioritized, math.max(low, first[2] - 1), id)
end

-- The state of a job; nil if it does not exist, or is in no place.
function places.state(id)
  if call('EXISTS', P .. id) == 0 then return nil end
  if groups.used() and groups.is_parked(id) then return 'waiting' end
  for i = 1, #places.sets do
    if call('ZSCORE', P .. places.sets[i][1], id) then return places.sets[i][2] end
  end
  if call('LPOS', P .. K.active, id) then return 'active' end
  if call('LPOS', P .. K.wait, id, 'RANK', -1) or call('LPOS', P .. K.paused, id) then return 'waiting' end
end

-- Take a job out of its place.
function places.leave(id, state)
  if state == 'delayed' or state == 'waiting_children' then steps.stop_resting(id) end
  if groups.used() and groups.leave(id) then return end
  for i = 1, #places.sets do
    if places.sets[i][2] == state then call('ZREM', P .. places.sets[i][1], id) end
  end
  if state == 'waiting' then
    if call('LREM', P .. K.wait, -1, id) == 0 then call('LREM', P .. K.paused, -1, id) end
    call('ZREM', P .. K.suspects, id)
  end
end

-- Whether nothing in the queue may start: it is paused, or at its concurrency.
function places.is_blocked()
  local meta = call('HMGET', P .. K.meta, F.is_paused, F.concurrency)
  if meta[1] then return true end
  return meta[2] and call('LLEN', P .. K.active) >= math.floor(tonumber(meta[2]) or math.huge)
end

-- The marker tells idle workers that a claim may get something.
-- Suspects do not count: who runs something cannot take them, and would be woken again and again. But a mark that was set
-- for them stays.
function places.mark_ready()
  groups.flush()
  local waiting, suspects = call('LLEN', P .. K.wait), call('ZCARD', P .. K.suspects)
  if waiting > suspects or call('ZCARD', P .. K.prioritized) > 0 or groups.changed or groups.can_admit() then
    if not places.is_blocked() then return call('ZADD', P .. K.marker, 0, '0') end
  elseif suspects > 0 then
    return
  end
  call('ZREM', P .. K.marker, '0')
end

-- The marker also tells when the next delayed job is due.
function places.mark_due()
  local first = call('ZRANGE', P .. K.delayed, 0, 0, 'WITHSCORES')
  if first[2] then call('ZADD', P .. K.marker, math.floor(first[2] / N.ties), '1') end
end

-- From here on the other parts speak of the queue with this base.
function places.switch_queue(base)
  if base == P then return end
  groups.flush()
  P, EVENTS, line.tops, groups.settings, groups.level, groups.known = base, base .. K.events, {}, false, false, {}
end
