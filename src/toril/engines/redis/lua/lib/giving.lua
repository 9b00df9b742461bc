-- Jobs that go back to the front, unfinished.
-- One that has stalled has not shown yet that it is innocent: it is claimed alone again, and a sleeper is to hear of it. It
-- keeps the seat of its group, as when it stalled.
local function give_back(id, priority, suspect)
  if not suspect then return to_front(id, priority) end
  local f = groups.used() and call('HMGET', P .. id, F.group, F.order) or {}
  if f[1] and groups.take_back(id, f[1], f[2], priority) then return end
  local first = call('ZRANGE', P .. K.suspects, 0, 0, 'WITHSCORES')
  call('RPUSH', P .. K.wait, id)
  call('ZADD', P .. K.suspects, (tonumber(first[2]) or 1) - 1, id)
  suspects, given_back = suspects + 1, true
end

-- Give back, in their order: each goes to the very front, so the last one first.
local function flush_released()
  for i = #released, 1, -1 do give_back(unpack(released[i])) end
  released = {}
end
