-- A job's options as its producer wrote them, its record as readers see it, and its deletion.
-- needs queue
local jobs = {sample = {trusted = false, ids = {}}}
local known_options, unreadable, deleted = {}, {}, {}

-- They are read, and never written again. Jobs of a queue share few sets of options.
function jobs.options(text)
  local found = known_options[text or '{}']
  if not found then
    local fine, decoded = pcall(cjson.decode, text or '{}')
    fine = fine and type(decoded) == 'table'
    found, unreadable[text or '{}'] = fine and decoded or {}, not fine
    known_options[text or '{}'] = found
  end
  return found
end

-- Whether one can know what the producer wanted; what is not there wants nothing.
function jobs.is_readable(text)
  jobs.options(text)
  return not unreadable[text or '{}']
end

-- How many attempts a job has.
function jobs.attempts(options)
  return math.max(1, context.number(options.attempts, N.attempts) or 1)
end

-- How many finished jobs to keep, and for how many ms; nil sets no bound. What is not said is kept, as BullMQ does.
function jobs.retention(option)
  if option == true then return 0 end
  if type(option) == 'table' then
    local age = tonumber(option.age)
    return context.number(option.count), context.number(age and age * 1000)
  end
  return type(option) == 'number' and context.number(option) or nil
end

-- What belongs to jobs that are removed goes together, at the end of the step: see `flush_deleted`. `sample` is what
-- `jobs.bare` said of the job.
function jobs.delete(id, sample)
  if context.is_reserved(id) then return end
  local n, key = #deleted, P .. id
  deleted[n + 1], deleted[n + 2] = key, key .. K.lock
  if sample and sample.trusted then return end
  deleted[n + 3], deleted[n + 4], deleted[n + 5] = key .. K.logs, key .. K.dependencies, key .. K.processed
  deleted[n + 6], deleted[n + 7] = key .. K.child_failures, key .. K.unsuccessful
end

-- Have these keys deleted too.
function jobs.delete_keys(keys)
  for i = 1, #keys do deleted[#deleted + 1] = keys[i] end
end

function jobs.flush_deleted()
  for first = 1, #deleted, 7000 do
    call('DEL', unpack(deleted, first, math.min(first + 6999, #deleted)))
  end
  deleted = {}
end

-- Whether a job has nothing but its hash and its lock. To look for what else it may have takes five searches among all
-- keys, which is most of what a million of them cost. So one job of a step, drawn by lot, is looked at, and the others are
-- taken for the same if they are Toril's own (-1 is its word for dead letters) in their first run, without children, in a
-- queue that Node's library has not opened, and in which no job was found to have more. A step of a few jobs deletes all
-- there may be.
function jobs.trust_sample(count) jobs.sample.trusted = count > N.few and not queue.meta[6] and not queue.own[11] end

-- False, or what says for this job as well whether there is more: `trusted`, once the one that was drawn is looked at.
function jobs.bare(id, options, starts, parked)
  local sample = jobs.sample
  if not sample.trusted or starts ~= '1' or parked or options.removeOnFail ~= -1 then return false end
  sample.ids[#sample.ids + 1] = id
  return sample
end

-- To be called with the first writes, before any job is deleted. The lot comes from the claim's token, which no two
-- steps of a worker share, and from the jobs: the same step draws the same one again.
function jobs.check_sample()
  local sample, ids = jobs.sample, jobs.sample.ids
  if #ids == 0 then return end
  local lot = tonumber(redis.sha1hex(ARGV[5] .. ':' .. ids[1]):sub(1, 8), 16)
  local key = P .. ids[1 + lot % #ids]
  sample.trusted = call('EXISTS', key .. K.logs, key .. K.dependencies, key .. K.processed, key .. K.child_failures,
    key .. K.unsuccessful) == 0
  if not sample.trusted then call('HSET', P .. K.toril, F.beside, '1') end
end

-- A job as a reader sees it: its fields, id, state, score and deadline; false if there is no such job.
function jobs.record(id, state, score)
  local f = redis.pcall('HMGET', P .. id, F.record_fields)
  if f.err or not f[1] then return false end
  local n = N.record
  f[n + 1], f[n + 2], f[n + 3] = id, state, score or false
  f[n + 4] = state == 'active' and call('ZSCORE', P .. K.deadlines, id) or false
  return f
end

-- Whether a job was claimed after a walk began, whose ceiling is the last fence then: such a one may have been seen.
function jobs.has_moved(record, ceiling)
  local fence = record[14] and tonumber(record[14]:match('^%d+'))
  return fence and fence > ceiling
end

-- Bytes of a record.
function jobs.record_size(fields)
  local bytes = 0
  for i = 1, N.record do bytes = bytes + (fields[i] and #fields[i] or 0) end
  return bytes
end
