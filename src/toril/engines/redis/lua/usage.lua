-- Bytes that a queue takes: its own keys, and those of some of its jobs and schedulers.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, how many jobs to look at
-- Returns bytes of its own keys, how many jobs it has, how many were looked at, bytes of these
-- Events  none
-- uses queue groups
local most = tonumber(ARGV[2])
local mistake = context.wrong('list', K.wait, K.paused, K.active)
  or context.wrong('zset', K.prioritized, K.delayed, K.waiting_children, K.completed, K.failed, K.parked, K.repeat)
if mistake then return mistake end

-- Of so many of its parts, 0 for all: by five, as Redis takes them by itself, a hash with one large field is misjudged.
local function size(key, parts) return call('MEMORY', 'USAGE', key, 'SAMPLES', parts) or 0 end

local own = 0
for _, name in ipairs({K.id, K.meta, K.wait, K.paused, K.active, K.prioritized, K.pc, K.delayed, K.waiting_children, K.completed,
  K.failed, K.marker, K.stalled, K.stalled_check, K.limiter, K.events, K.repeat, K.metrics_completed, K.metrics_failed,
  K.metrics_completed .. K.metrics_data, K.metrics_failed .. K.metrics_data, K.toril, K.deadlines, K.suspects, K.starts,
  K.runs_completed, K.runs_failed, K.runs_cancelled, K.results, K.results_till, K.building, K.ages, K.schedules, K.departed, K.parked, K.seats,
  K.put_off, K.ring, K.till, K.group_starts, K.group_own, K.figures, K.figures_noted, K.figures_past, K.figures_all,
  K.resting, K.awaited, K.kept_signals, K.kept_till, K.sent_ids, K.sent_till}) do
  own = own + size(P .. name, 100)
end

-- Some of so many, evenly over all of them.
local function some(count, wanted, at)
  local bytes = 0
  for i = 0, wanted - 1 do bytes = bytes + at(math.floor(i * count / wanted)) end
  return bytes
end

local schedulers = call('ZCARD', P .. K.repeat)
local asked = math.min(schedulers, most)
if asked > 0 then
  own = own + math.floor(schedulers / asked * some(schedulers, asked, function(i)
    return size(P .. K.schedule .. (call('ZRANGE', P .. K.repeat, i, i)[1] or ''), 0)
  end))
end

local BESIDE = {K.lock, K.logs, K.dependencies, K.processed, K.child_failures, K.unsuccessful}
local function job_size(id)
  if not id then return 0 end
  local bytes, key = size(P .. id, 0), redis.pcall('HGET', P .. id, F.dedup)  -- which may be no hash
  for i = 1, #BESIDE do bytes = bytes + size(P .. id .. BESIDE[i], 100) end
  if type(key) == 'string' then bytes = bytes + size(P .. K.dedup .. key, 0) + size(P .. K.dedup_next .. key, 0) end
  return bytes
end

local parts, total = {}, 0
for _, name in ipairs({K.wait, K.paused, K.active}) do
  parts[#parts + 1] = {queue.list_length(P .. name), function(i) return job_size(call('LINDEX', P .. name, i)) end}
end
for _, name in ipairs({K.prioritized, K.delayed, K.waiting_children, K.completed, K.failed}) do
  parts[#parts + 1] = {call('ZCARD', P .. name), function(i) return job_size(call('ZRANGE', P .. name, i, i)[1]) end}
end
parts[#parts + 1] = {call('ZCARD', P .. K.parked), function(i)
  return job_size(groups.job_of(call('ZRANGE', P .. K.parked, i, i)[1] or ''))
end}
for _, place in ipairs(parts) do total = total + place[1] end

local looked, bytes = 0, 0
for _, place in ipairs(parts) do
  local count = place[1]
  local wanted = math.min(count, math.ceil(most * count / math.max(total, 1)))
  if wanted > 0 then
    looked, bytes = looked + wanted, bytes + count / wanted * some(count, wanted, place[2])
  end
end
return {own, total, looked, math.floor(bytes)}
