-- Say which faults are there, and repair them. Each is looked for again in the step that repairs it.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, `look` or `repair`; for each fault its kind, whose it is, the place where it shows
-- Returns for each 1 if it is there, 0 if not, -1 if it was not looked for: too much had to be walked, so ask again
-- Events  waiting, delayed, waiting-children, added
-- uses events jobs line groups places parents dedup faults workers
-- How each fault is repaired. What loses least is kept: a run that goes on, then an end, then what is ready.
local REPAIR = {}

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

function REPAIR.ghost(id, place)
  leave_place(place, id)
  call('ZREM', P .. K.deadlines, id)
  call('ZREM', P .. K.suspects, id)
  if faults.can_walk() and #faults.places(id) == 0 and is_leftover(id) then jobs.delete(id) end
end

-- Whether a parent has to wait: a child is open, and none has failed for it.
local function has_children(id)
  local open = redis.pcall('SCARD', P .. id .. K.dependencies)
  return type(open) == 'number' and open > 0 and call('HEXISTS', P .. id, F.deferred) == 0
end

-- A job that has ended is what retention forgot to delete; any other was lost, and waits again. One with a lock may still
-- run: it goes back to `active`, where its end is heard of, or its stall found.
function REPAIR.orphan(id)
  local f = call('HMGET', P .. id, F.finished_at, F.priority, F.added_at, F.delay)
  if f[1] then return jobs.delete(id) end
  if faults.is_locked(id) then return call('LPUSH', P .. K.active, id) end
  if has_children(id) then
    call('ZADD', P .. K.waiting_children, NOW, id)
    return events.add('waiting-children', 'jobId', id)
  end
  local due = (context.number(f[3]) or 0) + (context.number(f[4]) or 0)
  if due > now then
    line.delay(id, due)
    events.add('delayed', 'jobId', id, 'delay', due)
  else
    places.to_back(id, context.number(f[2], N.lowest_priority) or 0)
    events.add('waiting', 'jobId', id)
  end
end

local KEPT = {K.completed, K.failed, K.prioritized, K.wait, K.paused, K.delayed, K.waiting_children, K.active}

function REPAIR.two_places(id)
  local found, kept = {}, nil
  for _, place in ipairs(faults.places(id)) do found[place] = true end
  if found[K.active] and faults.is_locked(id) then kept = K.active end
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

function REPAIR.stray_lock(id)
  call('DEL', P .. id .. K.lock)
  call('SREM', P .. K.stalled, id)
  call('ZREM', P .. K.deadlines, id)
end

function REPAIR.missing_marker() end  -- it is set after all of them

function REPAIR.lost_job() end  -- it is taken back by `recover`

function REPAIR.stuck_parent(id)
  call('DEL', P .. id .. K.dependencies)
  parents.release({base = P, id = id, key = P .. id})
end

-- As if its owner ended now: a job that was kept for that moment is made.
function REPAIR.stale_dedup(key) dedup.release(key, call('GET', P .. K.dedup .. key)) end

function REPAIR.stale_suspect(id) call('ZREM', P .. K.suspects, id) end

function REPAIR.stale_rest(id)
  call('ZREM', P .. K.resting, id)
  if faults.is_job(id) then call('HDEL', P .. id, F.rest) end
end

function REPAIR.orphan_wait(subject) call('HDEL', P .. K.awaited, faults.awaited(subject)) end

function REPAIR.dead_worker(worker) workers.forget(worker) end

local mistake = context.wrong('list', K.wait, K.active, K.paused) or context.wrong('stream', K.events)
  or context.wrong('hash', K.meta, K.toril, K.awaited)
  or context.wrong('zset', K.prioritized, K.delayed, K.waiting_children, K.completed, K.failed, K.marker, K.deadlines, K.suspects,
    K.resting)
  or context.wrong('set', K.stalled) or context.wrong('string', K.pc) or groups.wrong()
if mistake then return mistake end

local repairs, found, any = ARGV[2] == 'repair', {}, false
for i = 3, #ARGV, 3 do
  local n, kind = #found + 1, ARGV[i]
  if faults.walked > N.walked then
    found[n] = -1
  else
    found[n] = faults.check[kind](ARGV[i + 1], ARGV[i + 2]) and 1 or 0
    if repairs and found[n] == 1 then
      any = true
      REPAIR[kind](ARGV[i + 1], ARGV[i + 2])
    end
  end
end
if any then
  jobs.flush_deleted()
  places.mark_due()
  if call('EXISTS', P .. K.meta) == 1 then places.mark_ready() end
end
return found
