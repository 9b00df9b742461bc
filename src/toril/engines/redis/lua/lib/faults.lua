-- include states
-- include marks
-- What is wrong: each function says whether a fault is there, now. Lists have to be walked, so their lengths are counted
-- up, and jobs of a queue whose lists are long are taken to be where they should be.
local LISTS = {K.active, K.wait, K.paused}
local walked, FAULT = 0, {}

local function can_walk()
  local length = 0
  for i = 1, #LISTS do length = length + call('LLEN', P .. LISTS[i]) end
  walked = walked + length
  return length <= N.walked
end

-- What Node writes when it starts a job that is not there has no name.
local function is_job(id) return redis.pcall('HEXISTS', P .. id, F.name) == 1 end
local function is_locked(id) return call('EXISTS', P .. id .. K.lock) == 1 end

-- All the places where an id stands; a list counts up to twice.
local function stands(id)
  local found = {}
  for i = 1, #ZSETS do
    if call('ZSCORE', P .. ZSETS[i][1], id) then found[#found + 1] = ZSETS[i][1] end
  end
  for i = 1, #LISTS do
    for _ = 1, #call('LPOS', P .. LISTS[i], id, 'COUNT', 2) do found[#found + 1] = LISTS[i] end
  end
  return found
end

local function stands_in(place, id)
  if call('TYPE', P .. place).ok == 'zset' then return call('ZSCORE', P .. place, id) and true end
  return can_walk() and call('LPOS', P .. place, id) and true
end

function FAULT.ghost(id, place) return not is_job(id) and not is_locked(id) and stands_in(place, id) end

-- Fields of our own that we do not know here may say that the job is kept elsewhere.
local PLAIN = {
  [F.held] = 1, [F.expires] = 1, [F.metadata] = 1, [F.checkpoint] = 1, [F.cancelling] = 1, [F.kind] = 1, [F.stall_cause] = 1,
  [F.waited] = 1, [F.parked] = 1, [F.group] = 1, [F.order] = 1, [F.ready] = 1, [F.errors] = 1,
  [F.children] = 1,
}

-- A lock does not excuse it: who takes a job puts it into `active` in the same step.
function FAULT.orphan(id)
  local names, known = redis.pcall('HKEYS', P .. id), {}
  for i = 1, #names do
    known[names[i]] = true
    if names[i]:find('^toril:') and not PLAIN[names[i]] then return false end
  end
  if known[F.group] and groups.used() and groups.is_parked(id) then return false end
  return known[F.name] and known[F.added_at] and can_walk() and #stands(id) == 0
end

function FAULT.two_places(id) return is_job(id) and can_walk() and #stands(id) > 1 end

-- Who runs a job holds its lock. The deadline is ours; recovery looks at it every few seconds.
function FAULT.lost_job(id)
  local deadline = tonumber(call('ZSCORE', P .. K.deadlines, id) or nil) or 0
  return deadline + N.patience < now and not is_locked(id) and is_job(id) and stands_in(K.active, id)
end

function FAULT.stray_lock(id)
  if not is_locked(id) or not can_walk() then return false end
  return not is_job(id) or not (call('LPOS', P .. K.active, id) or FAULT.orphan(id))
end

-- While the rate is shut no mark is set; what is left of a rate that was may look like that.
function FAULT.missing_marker(first)
  local ready = call('LINDEX', P .. K.wait, -1) or call('ZRANGE', P .. K.prioritized, 0, 0)[1]
  if ready ~= first or call('ZSCORE', P .. K.marker, '0') or blocked() then return false end
  local held = tonumber(call('HGET', P .. K.toril, F.held_till) or nil) or 0
  if held > now or call('EXISTS', P .. K.limiter, P .. K.starts) > 0 then return false end
  return call('LLEN', P .. K.wait) > call('ZCARD', P .. K.suspects) or call('ZCARD', P .. K.prioritized) > 0
end
