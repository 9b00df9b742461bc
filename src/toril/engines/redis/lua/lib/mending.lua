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

function MEND.ghost(id, place)
  leave_place(place, id)
  call('ZREM', P .. K.deadlines, id)
  call('ZREM', P .. K.suspects, id)
  if can_walk() and #stands(id) == 0 then forget(id) end
end

-- A job that has ended is what retention forgot to delete; any other was lost, and waits again.
function MEND.orphan(id)
  local f = call('HMGET', P .. id, F.finished_at, F.priority, F.added_at, F.delay)
  if f[1] then return forget(id) end
  local due = (tonumber(f[3]) or 0) + (tonumber(f[4]) or 0)
  if due > now then
    delay_until(id, due)
    event('delayed', 'jobId', id, 'delay', due)
  else
    to_back(id, tonumber(f[2]) or 0)
    event('waiting', 'jobId', id)
  end
end

local KEPT = {K.completed, K.failed, K.prioritized, K.wait, K.paused, K.delayed, K.waiting_children, K.active}

function MEND.two_places(id)
  local found, kept = {}, nil
  for _, place in ipairs(stands(id)) do found[place] = true end
  if found[K.active] and is_locked(id) then kept = K.active end
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

function MEND.stray_lock(id)
  call('DEL', P .. id .. K.lock)
  call('SREM', P .. K.stalled, id)
  call('ZREM', P .. K.deadlines, id)
end

function MEND.missing_marker() end  -- it is set after all of them
function MEND.lost_job() end  -- it is taken back by `recover`

function MEND.stuck_parent(id)
  call('DEL', P .. id .. K.dependencies)
  free({base = P, id = id, key = P .. id}, K.waiting_children, 'waiting-children')
end

function MEND.stale_dedup(key) call('DEL', P .. K.dedup .. ':' .. key, P .. K.dedup_next .. ':' .. key) end

function MEND.stale_suspect(id) call('ZREM', P .. K.suspects, id) end

function MEND.dead_worker(worker)
  call('ZREM', W .. G.workers_till, worker)
  call('HDEL', W .. G.workers, worker)
  call('HDEL', W .. G.orders, worker)
end
