-- include leftovers
-- include jobs
-- include places
-- include events
-- How each fault is mended. What loses least is kept: a run that goes on, then an end, then what is ready.
local MEND = {}

local function leave_place(place, id)
  if call('TYPE', P .. place).ok == 'zset' then return call('ZREM', P .. place, id) end
  return call('LREM', P .. place, 0, id)
end

-- Whether the key of an id without a job is what is left of one. What another program keeps there is not ours to delete,
-- nor is what belongs to another job.
local function is_leftover(id)
  local _, colons = id:gsub(':', '')
  if colons ~= 0 and colons ~= 2 and not id:find('^repeat:') then return false end
  local kind = call('TYPE', P .. id).ok
  return kind == 'hash' or kind == 'none'
end

function MEND.ghost(id, place)
  leave_place(place, id)
  call('ZREM', P .. K.deadlines, id)
  call('ZREM', P .. K.suspects, id)
  if can_walk() and #stands(id) == 0 and is_leftover(id) then forget(id) end
end

-- Whether a parent has to wait: a child is open, and none has failed for it.
local function has_children(id)
  local open = redis.pcall('SCARD', P .. id .. K.dependencies)
  return type(open) == 'number' and open > 0 and call('HEXISTS', P .. id, F.deferred) == 0
end

-- A job that has ended is what retention forgot to delete; any other was lost, and waits again. One with a lock may still
-- run: it goes back to `active`, where its end is heard of, or its stall found.
function MEND.orphan(id)
  local f = call('HMGET', P .. id, F.finished_at, F.priority, F.added_at, F.delay)
  if f[1] then return forget(id) end
  if is_locked(id) then return call('LPUSH', P .. K.active, id) end
  if has_children(id) then
    call('ZADD', P .. K.waiting_children, NOW, id)
    return event('waiting-children', 'jobId', id)
  end
  local due = (as_number(f[3]) or 0) + (as_number(f[4]) or 0)
  if due > now then
    delay_until(id, due)
    event('delayed', 'jobId', id, 'delay', due)
  else
    to_back(id, as_number(f[2], N.lowest_priority) or 0)
    event('waiting', 'jobId', id)
  end
end

local KEPT = {K.completed, K.failed, K.prioritized, K.wait, K.paused, K.delayed, K.waiting_children, K.active}

function MEND.two_places(id)
  local found, kept = {}, nil
  for _, place in ipairs(stands(id)) do found[place] = true end
  if found[K.active] and is_locked(id) then kept = K.active end
  local ended = found[K.completed] or found[K.failed]
  if not kept and not ended and found[K.waiting_children] and has_children(id) then kept = K.waiting_children end
  for i = 1, #KEPT do
    if not kept and found[KEPT[i]] then kept = KEPT[i] end
  end
  for place in pairs(found) do
    if place ~= kept then leave_place(place, id) end
  end
  if call('TYPE', P .. kept).ok == 'list' then
    for _ = 2, #call('LPOS', P .. kept, id, 'COUNT', 0) do call('LREM', P .. kept, 1, id) end
  end
  if kept ~= K.active then call('ZREM', P .. K.deadlines, id) end
  if kept ~= K.wait then call('ZREM', P .. K.suspects, id) end
end
