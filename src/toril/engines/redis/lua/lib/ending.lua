-- Jobs that end: run record, figures, retention, and who waits for the result.
-- include events
-- include jobs
-- include keeping
-- include dedup
-- include burying
local WISH = {completed = 'removeOnComplete', failed = 'removeOnFail'}
local STATE = {completed = P .. K.completed, failed = P .. K.failed}
local rows, kept = {completed = {}, failed = {}, cancelled = {}}, {completed = {}, failed = {}}
local last_score, ended, letting = {}, {}, {}

-- By the time of ending; within a millisecond by fractions of it, in the order of ending.
local function ended_score(ending)
  local score = last_score[ending]
  if not score then
    local top = call('ZREVRANGEBYSCORE', STATE[ending], '(' .. (now + 1), now, 'WITHSCORES', 'LIMIT', 0, 1)
    score = tonumber(top[2])
  end
  score = score and math.min(score + 1 / N.ties, now + 1 - 1 / N.ties) or now
  last_score[ending] = score
  return score
end

-- `job` has name, added, started, made, stalls, worker, options. `fields` is written if the job is kept. One that was
-- cancelled stands among the failed ones, where BullMQ looks for it, but is counted and remembered apart.
local function end_job(ending, id, job, cause, text, shown, whole, fields)
  local list, options = rows[cause == 'cancelled' and cause or ending], options_of(job.options)
  ended[#ended + 1] = id
  if cause == 'cancelled' then figures.one(F.cancelled) elseif ending == 'failed' then figures.failure(job.name) end
  if job.group then groups.give_up_seat(id, job.group) end
  local own = type(options.toril) == 'table' and options.toril or {}
  list[#list + 1] = run_of(id, job, cause, shown, whole, own.subject)
  local de = options.de
  if de and type(de) == 'table' and de.id then letting[#letting + 1] = {tostring(de.id), id} end
  local ttl = as_number(own.resultTtl)
  if ttl then
    call('HSET', P .. K.results, id, cmsgpack.pack({cause, text}))
    call('ZADD', P .. K.results_till, now + ttl, id)
  end
  local wish = options[WISH[ending]]
  local count, age = keep_of(wish)
  local buried = ending == 'failed' and wish == -1 and MOURNED[cause] and may_bury()
  if buried then
    bury(id, job, cause, shown, fields)
  elseif wish == -1 and ending == 'failed' and not MOURNED[cause] then
    count = 0
  end
  if job.parent then told[#told + 1] = {P .. id, job.parent, ending, text, buried or count ~= 0} end
  if buried or count == 0 then
    forget(id, job.bare)
    return
  end
  call('ZADD', STATE[ending], ended_score(ending), id)
  call('HSET', P .. id, F.finished_at, NOW, F.attempts_made, job.made, unpack(fields))
  call('HDEL', P .. id, F.cancelling, F.deferred)
  if age then call('ZADD', P .. K.ages, now + age + 1, id) end
  kept[ending][#kept[ending] + 1] = {count, age}
end

local function remove_oldest(ending, ids)
  if #ids == 0 then return end
  call('ZREM', STATE[ending], unpack(ids))
  call('ZREM', P .. K.ages, unpack(ids))
  for i = 1, #ids do forget(ids[i]) end
end

-- Each job that ends makes room for itself by its own count, before the next one ends.
local function trim(ending, keeps)
  local total, over, youngest = call('ZCARD', STATE[ending]), 0, nil
  for i = 1, #keeps do
    if keeps[i][1] then over = math.max(over, total - (#keeps - i) - keeps[i][1]) end
    if keeps[i][2] then youngest = math.min(youngest or keeps[i][2], keeps[i][2]) end
  end
  if over > 0 then remove_oldest(ending, call('ZRANGE', STATE[ending], 0, math.min(over, N.trimmed) - 1)) end
  if youngest then
    local old = call('ZRANGEBYSCORE', STATE[ending], '-inf', '(' .. (now - youngest), 'LIMIT', 0, N.trimmed)
    remove_oldest(ending, old)
  end
end
