-- Faults: whether one exists now.
-- needs groups places parents steps signals
-- Lists have to be walked, so their lengths are counted up, and jobs of a queue whose lists are long are taken to be where
-- they should be.
local faults = {check = {}, walked = 0, lists = {K.active, K.wait, K.paused}}
-- Unknown fields of Toril's may mean that the job is stored elsewhere too.
local PLAIN = {
  [F.held] = 1, [F.expires] = 1, [F.metadata] = 1, [F.checkpoint] = 1, [F.cancelling] = 1, [F.kind] = 1, [F.stall_cause] = 1,
  [F.waited] = 1, [F.parked] = 1, [F.group] = 1, [F.order] = 1, [F.ready] = 1, [F.errors] = 1,
  [F.children] = 1, [F.steps] = 1, [F.reruns] = 1, [F.rest] = 1, [F.awaits] = 1, [F.inbox] = 1, [F.signal_ids] = 1,
}

function faults.can_walk()
  local length = 0
  for i = 1, #faults.lists do length = length + call('LLEN', P .. faults.lists[i]) end
  faults.walked = faults.walked + length
  return length <= N.walked
end

-- A hash that Node writes when it starts a job that is gone has no name.
function faults.is_job(id) return redis.pcall('HEXISTS', P .. id, F.name) == 1 end

function faults.is_locked(id) return call('EXISTS', P .. id .. K.lock) == 1 end

-- All the places that contain an id; a list counts up to twice.
function faults.places(id)
  local found = {}
  for i = 1, #places.sets do
    if call('ZSCORE', P .. places.sets[i][1], id) then found[#found + 1] = places.sets[i][1] end
  end
  for i = 1, #faults.lists do
    for _ = 1, #call('LPOS', P .. faults.lists[i], id, 'COUNT', 2) do found[#found + 1] = faults.lists[i] end
  end
  return found
end

function faults.stands_in(place, id)
  if call('TYPE', P .. place).ok == 'zset' then return call('ZSCORE', P .. place, id) and true end
  return faults.can_walk() and call('LPOS', P .. place, id) and true
end

function faults.check.ghost(id, place)
  return not faults.is_job(id) and not faults.is_locked(id) and faults.stands_in(place, id)
end

-- A lock does not explain it: whoever claims a job puts it into `active` in the same step.
function faults.check.orphan(id)
  local names, known = redis.pcall('HKEYS', P .. id), {}
  for i = 1, #names do
    known[names[i]] = true
    local own = names[i]:find('^toril:') and not PLAIN[names[i]]
    if own and names[i]:sub(1, #F.step) ~= F.step then return false end
  end
  if known[F.group] and groups.used() and groups.is_parked(id) then return false end
  return known[F.name] and known[F.added_at] and faults.can_walk() and #faults.places(id) == 0
end

function faults.check.two_places(id) return faults.is_job(id) and faults.can_walk() and #faults.places(id) > 1 end

-- Whoever runs a job holds its lock. The deadline is ours; recovery checks it every few seconds.
function faults.check.lost_job(id)
  local deadline = tonumber(call('ZSCORE', P .. K.deadlines, id) or nil) or 0
  return deadline + N.patience < now and not faults.is_locked(id) and faults.is_job(id) and faults.stands_in(K.active, id)
end

function faults.check.stray_lock(id)
  if not faults.is_locked(id) or not faults.can_walk() then return false end
  return not faults.is_job(id) or not (call('LPOS', P .. K.active, id) or faults.check.orphan(id))
end

-- While the rate is shut no mark is set; what is left of a rate that was may look like that.
function faults.check.missing_marker(first)
  local ready = call('LINDEX', P .. K.wait, -1) or call('ZRANGE', P .. K.prioritized, 0, 0)[1]
  if ready ~= first or call('ZSCORE', P .. K.marker, '0') or places.is_blocked() then return false end
  local held = tonumber(call('HGET', P .. K.toril, F.held_till) or nil) or 0
  if held > now or call('EXISTS', P .. K.limiter, P .. K.starts) > 0 then return false end
  return call('LLEN', P .. K.wait) > call('ZCARD', P .. K.suspects) or call('ZCARD', P .. K.prioritized) > 0
end

-- Whether nobody could release a parent: it has no children, or all of them are gone.
function faults.check.stuck_parent(id)
  local waits = call('ZSCORE', P .. K.waiting_children, id) or parents.rests({base = P, id = id, key = P .. id})
  if not waits or not faults.is_job(id) then return false end
  local key, cursor, seen = P .. id .. K.dependencies, '0', 0
  repeat
    local found = call('SSCAN', key, cursor, 'COUNT', 100)
    cursor, seen = found[1], seen + #found[2]
    for i = 1, #found[2] do
      local child = found[2][i]
      if child == P .. id .. K.hold or not parents.is_gone(child) then return false end  -- more children may follow
    end
  until cursor == '0' or seen > N.strangers
  return cursor == '0'
end

-- A key without a time belongs to its owner until that ends. One with a time expires by itself.
function faults.check.stale_dedup(key)
  local name = P .. K.dedup .. key
  local owner = redis.pcall('GET', name)
  if type(owner) ~= 'string' or call('PTTL', name) ~= -1 then return false end
  return not faults.is_job(owner) or call('ZSCORE', P .. K.completed, owner) or call('ZSCORE', P .. K.failed, owner)
end

function faults.check.stale_suspect(id)
  return call('ZSCORE', P .. K.suspects, id) and faults.can_walk() and not call('LPOS', P .. K.wait, id)
end

-- Another library has moved the job on, or removed it.
function faults.check.stale_rest(id) return call('ZSCORE', P .. K.resting, id) and not steps.rest_of(id) end

-- The name of a signal, a space, and the key.
function faults.awaited(subject)
  return signals.name_of(subject:match('^([^ ]*) (.*)$'))
end

function faults.check.orphan_wait(subject)
  local wanted = faults.awaited(subject)
  local id = call('HGET', P .. K.awaited, wanted)
  return id and not signals.is_awaited_by(id, wanted)
end

function faults.check.dead_worker(worker)
  local till = tonumber(call('ZSCORE', W .. G.workers_till, worker) or nil)
  return till and till + N.prune_overdue < now
end

-- Otherwise this script would have ended before.
function faults.check.foreign_key() return false end

-- Only Python's JSON reader can decide that.
function faults.check.unreadable_job() return false end
