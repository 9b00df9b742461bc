-- A job ends: retention, result, parent, deduplication key, dead letter.
-- needs events jobs groups metrics parents dedup dead_letters signals
local finish = {}
local RETENTION = {completed = 'removeOnComplete', failed = 'removeOnFail'}
local SET = {completed = P .. K.completed, failed = P .. K.failed}
local records, kept = {completed = {}, failed = {}, cancelled = {}}, {completed = {}, failed = {}}
local last_score, ended, owned = {}, {}, {}

-- The keys that the end of a job writes to, including where it or its result is kept.
function finish.wrong(ending, kept)
  local zset, runs, counts = K.failed, K.runs_failed, K.metrics_failed
  if ending == 'completed' then zset, runs, counts = K.completed, K.runs_completed, K.metrics_completed end
  local mistake = context.wrong('list', runs, ending == 'failed' and K.runs_cancelled or nil)
    or context.wrong('hash', counts)
  if mistake or not kept then return mistake end
  return context.wrong('zset', zset, K.ages, K.results_till) or context.wrong('hash', K.results)
end

-- A score by time of ending; fractions give the order within a millisecond.
function finish.score(ending)
  local score = last_score[ending]
  if not score then
    local top = call('ZREVRANGEBYSCORE', SET[ending], '(' .. (now + 1), now, 'WITHSCORES', 'LIMIT', 0, 1)
    score = tonumber(top[2])
  end
  score = score and math.min(score + 1 / N.ties, now + 1 - 1 / N.ties) or now
  last_score[ending] = score
  return score
end

-- `job` has name, added, started, made, stalls, worker, options. `fields` is written if the job is kept. One that was
-- cancelled stands among the failed ones, where BullMQ looks for it, but is counted and remembered apart.
function finish.job(ending, id, job, cause, text, shown, whole, fields)
  local list, options = records[cause == 'cancelled' and cause or ending], jobs.options(job.options)
  ended[#ended + 1] = id
  if cause == 'cancelled' then metrics.count(F.cancelled) elseif ending == 'failed' then metrics.count_failure(job.name) end
  if job.group then groups.give_up_seat(id, job.group) end
  signals.leave(id)
  local own = type(options.toril) == 'table' and options.toril or {}
  list[#list + 1] = metrics.run_record(id, job, cause, shown, whole, own.subject)
  local de = options.de
  if de and type(de) == 'table' and de.id then owned[#owned + 1] = {tostring(de.id), id} end
  local ttl = context.number(own.resultTtl)
  if ttl then
    call('HSET', P .. K.results, id, cmsgpack.pack({cause, text}))
    call('ZADD', P .. K.results_till, now + ttl, id)
  end
  local retention = options[RETENTION[ending]]
  local count, age = jobs.retention(retention)
  local is_dead_letter = ending == 'failed' and retention == -1 and dead_letters.causes[cause] and dead_letters.can_add()
  if is_dead_letter then
    dead_letters.add(id, job, cause, shown, fields)
  elseif retention == -1 and ending == 'failed' and not dead_letters.causes[cause] then
    count = 0
  end
  if job.parent then parents.ended[#parents.ended + 1] = {P .. id, job.parent, ending, text, is_dead_letter or count ~= 0} end
  if is_dead_letter or count == 0 then
    jobs.delete(id, job.bare)
    return
  end
  call('ZADD', SET[ending], finish.score(ending), id)
  call('HSET', P .. id, F.finished_at, NOW, F.attempts_made, job.made, unpack(fields))
  call('HDEL', P .. id, F.cancelling, F.deferred, ending == 'completed' and F.inbox or F.deferred)
  if age then call('ZADD', P .. K.ages, now + age + 1, id) end
  kept[ending][#kept[ending] + 1] = {count, age}
end

-- Remove jobs beyond their retention.
function finish.remove(ending, ids)
  if #ids == 0 then return end
  call('ZREM', SET[ending], unpack(ids))
  call('ZREM', P .. K.ages, unpack(ids))
  for i = 1, #ids do jobs.delete(ids[i]) end
end

-- Each job that ends makes room for itself by its own count, before the next one ends.
function finish.trim(ending, keeps)
  local total, over, youngest = call('ZCARD', SET[ending]), 0, nil
  for i = 1, #keeps do
    if keeps[i][1] then over = math.max(over, total - (#keeps - i) - keeps[i][1]) end
    if keeps[i][2] then youngest = math.min(youngest or keeps[i][2], keeps[i][2]) end
  end
  if over > 0 then finish.remove(ending, call('ZRANGE', SET[ending], 0, math.min(over, N.trimmed) - 1)) end
  if youngest then
    local old = call('ZRANGEBYSCORE', SET[ending], '-inf', '(' .. (now - youngest), 'LIMIT', 0, N.trimmed)
    finish.remove(ending, old)
  end
end

-- Write what the jobs that ended in this step leave behind, in few commands. Call it after the last of them.
function finish.flush()
  metrics.flush()
  for ending, list in pairs(records) do
    if #list > 0 then metrics.record_runs(ending, list) end
  end
  for state, keeps in pairs(kept) do
    if #keeps > 0 then finish.trim(state, keeps) end
  end
  jobs.flush_deleted()
  if #ended > 0 then call('PUBLISH', P .. K.ended, table.concat(ended, '\n')) end
  for i = 1, #owned do dedup.release(owned[i][1], owned[i][2]) end
  records, kept, ended, owned = {completed = {}, failed = {}, cancelled = {}}, {completed = {}, failed = {}}, {}, {}
  parents.flush()
end

-- The last traces, as many as the job's producer wants.
function finish.last_traces(traces, options)
  local most = context.number(jobs.options(options).stackTraceLimit)
  local fine, list = pcall(cjson.decode, most and traces or '')
  if not fine or type(list) ~= 'table' or #list <= most then return traces end
  local last = {}
  for i = math.max(1, #list - most + 1), #list do last[#last + 1] = list[i] end
  local text
  fine, text = pcall(cjson.encode, last)
  return #last == 0 and '[]' or fine and text or traces
end

-- A failure's fields: the text, what kind it was, and its stack trace after those of earlier attempts.
function finish.failure_fields(id, options, reason, kind, trace)
  if trace == '' then
    call('HDEL', P .. id, F.trace)
    return {F.reason, reason, F.kind, kind}
  end
  local before = call('HGET', P .. id, F.trace)
  local traces = '[' .. trace .. ']'
  if before and #before > 2 and #before < N.traces and before:sub(-1) == ']' then
    traces = before:sub(1, -2) .. ',' .. trace .. ']'
  end
  return {F.reason, reason, F.kind, kind, F.trace, finish.last_traces(traces, options)}
end

-- The errors of attempts before, and this one: the newest so many.
function finish.errors(id, attempt, brief)
  local before, entry = call('HGET', P .. id, F.errors), '[' .. attempt .. ',' .. NOW .. ',' .. brief .. ']'
  if not before then return entry end
  local _, breaks = before:gsub('\n', '')
  if breaks >= N.errors - 1 then before = before:match('\n(.*)$') end
  return before .. '\n' .. entry
end

-- A job has failed for good, or is cancelled.
function finish.fail(id, job, cause, reason, kind, trace, shown, whole)
  if cause == 'cancelled' then
    events.add('failed', 'jobId', id, 'failedReason', reason, 'prev', 'active', 'cause', cause)
  else
    events.add('failed', 'jobId', id, 'failedReason', reason, 'prev', 'active')
  end
  finish.job('failed', id, job, cause, reason, shown, whole, finish.failure_fields(id, job.options, reason, kind, trace))
end
