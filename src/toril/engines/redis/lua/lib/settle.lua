-- Settlements. Each counts only while its lease is valid.
-- needs events queue jobs line groups places metrics leases finish flows rests
-- The first of a batch is in ARGV[15] to [21]: id, token, kind, text, shown, extra, trace; the others follow.
local settle = {delayed_some = false, released_suspect = false}
local OK, LOST, MISSING = 0, 1, 2  -- verdicts
local FAILS = {f = 'failed', x = 'cancelled'}
local released = {}

-- The fields of a job that its end needs.
function settle.running_job(id)
  local f = call('HMGET', P .. id, F.name, F.added_at, F.started_at, F.attempts_made, F.stalls, F.worker, F.opts, F.priority, F.cancelling,
    F.parent, F.deferred, F.group, F.held, F.parked, F.starts, F.ready)
  return {
    name = f[1], added = f[2], started = f[3], made = context.number(f[4]) or 0, stalls = context.number(f[5]) or 0, worker = f[6],
    options = f[7], priority = context.number(f[8], N.lowest_priority) or 0, cancelling = f[9], parent = f[10], deferred = f[11], group = f[12],
    parked = f[14], starts = f[15], ready = f[16], suspect = (f[13] or ''):match('^%d+ 1 '), bare = jobs.bare(id, jobs.options(f[7]), f[15], f[14]),
  }
end

-- Delay a job.
function settle.delay(id, job, delay, ...)
  call('HSET', P .. id, F.delay, delay, F.waited, delay, ...)
  if job.group then groups.delay(id, job.group) end
  line.delay(id, now + delay)
  settle.delayed_some = true
  events.add('delayed', 'jobId', id, 'delay', now + delay)
end

function settle.retry(id, job, delay, fields)
  if delay > 0 then
    settle.delay(id, job, delay, F.attempts_made, job.made + 1, unpack(fields))
  else
    call('HSET', P .. id, F.attempts_made, job.made + 1, F.delay, 0, F.waited, 0, unpack(fields))
    if job.group then groups.give_up_seat(id, job.group) end
    places.to_back(id, job.priority)
    events.add('waiting', 'jobId', id, 'prev', 'active')
  end
end

-- A job rests, with new children and rests as JSON: true. False if it goes on at once, since something has come already, or
-- with a refusal and its kind if it fails.
function settle.rest(id, job, children, round, text)
  local reasons = cjson.decode(text)
  if not rests.record(id, reasons) then
    return false, 'the steps of this job take more than 16 MB; let it record less', 'StepsTooLarge'
  end
  local refusal = flows.adopt(id, children)
  if refusal then return false, refusal, 'WrongState' end
  call('HSET', P .. id, F.delay, 0, F.waited, 0)
  if round > 0 then call('HSET', P .. id, F.parked, round) end
  if job.stalls > 0 then call('HSET', P .. id, F.stalls, 0) end
  if queue.own[3] then call('HDEL', P .. id, F.expires) end
  local open = call('SCARD', P .. id .. K.dependencies) > 0
  if (not open and rests.waits_for_children(reasons)) or rests.has_come(id, reasons) then return false end
  if rests.begin(id, reasons) then settle.delayed_some = true end
  return true
end

-- `kind` is one letter: completed, failed, retried, snoozed, released (l), cancelled (x), to rest (w).
function settle.one(id, job, kind, text, shown, extra, trace)
  metrics.count_attempt(job, kind)
  local brief
  if kind == 'r' then trace, brief = trace:match('^([^\n]*)\n(.*)$') end
  local whole = shown == '='
  shown = whole and text or shown:sub(2)
  if job.cancelling and (kind == 'r' or kind == 's' or kind == 'l' or kind == 'w') then
    kind, text, shown, whole, extra, trace = 'x', job.cancelling, job.cancelling:sub(1, 1024), #job.cancelling <= 1024, 'JobCancelled', ''
  end
  if job.deferred and kind ~= 'f' and kind ~= 'x' then  -- a child's failure is its own
    kind, text, shown, whole, extra, trace = 'f', job.deferred, job.deferred:sub(1, 1024), #job.deferred <= 1024, 'ChildFailed', ''
  elseif kind == 'r' and job.made + 1 >= jobs.attempts(jobs.options(job.options)) then  -- no attempts are left
    kind, extra, shown, whole = 'f', shown, text:sub(1, 1024), #text <= 1024
  elseif kind == 'w' then
    local stays, refusal, why = settle.rest(id, job, text, tonumber(extra), trace)
    if stays then return job.group and groups.give_up_seat(id, job.group) end
    job.suspect, job.bare = nil, nil
    kind = refusal and 'f' or 'l'
    if refusal then text, shown, whole, extra, trace = refusal, refusal, true, why, '' end
  end
  if kind == 'c' then
    job.made = job.made + 1
    call('XADD', EVENTS, '*', 'event', 'completed', 'jobId', id, 'returnvalue', text, 'prev', 'active')
    finish.job('completed', id, job, 'completed', text, shown, whole, {F.result, text})
  elseif FAILS[kind] then
    job.made = job.made + 1
    finish.fail(id, job, FAILS[kind], text, extra, trace, shown, whole)
    if kind == 'f' and job.made >= jobs.attempts(jobs.options(job.options)) then
      events.add('retries-exhausted', 'jobId', id, 'attemptsMade', job.made)
    end
  elseif kind == 'r' then
    metrics.count(F.retries)
    local fields = finish.failure_fields(id, job.options, text, shown, trace)
    fields[#fields + 1], fields[#fields + 2] = F.errors, finish.errors(id, job.made + 1, brief)
    settle.retry(id, job, tonumber(extra), fields)
  elseif kind == 's' then
    settle.delay(id, job, tonumber(extra))
  else
    if job.group and not job.suspect then groups.give_up_seat(id, job.group) end
    released[#released + 1] = {id, job.priority, job.suspect}
    events.add('waiting', 'jobId', id, 'prev', 'active')
  end
end

-- A job goes back to the front, unfinished. One that has stalled has still to run alone: it is claimed so again, and who
-- sleeps is to hear of it. It keeps the seat of its group, as when it stalled.
function settle.release(id, priority, suspect)
  if not suspect then return places.to_front(id, priority) end
  local f = groups.used() and call('HMGET', P .. id, F.group, F.order) or {}
  if f[1] and groups.recover(id, f[1], f[2], priority) then return end
  local first = call('ZRANGE', P .. K.suspects, 0, 0, 'WITHSCORES')
  call('RPUSH', P .. K.wait, id)
  call('ZADD', P .. K.suspects, (tonumber(first[2]) or 1) - 1, id)
  line.suspects, settle.released_suspect = line.suspects + 1, true
end

-- Release them in their order: each goes to the very front, so the last one first.
function settle.flush_released()
  for i = #released, 1, -1 do settle.release(unpack(released[i])) end
  released = {}
end

-- Look at a whole batch before anything is written: which of its jobs are settled, by their places in it, and what is to be
-- written for them.
function settle.check(count)
  local ids, tokens, batch = {}, {}, {ids = {}, by_id = {}, locks = {}, verdicts = {}, settled = {}, writes = {}}
  for i = 1, count do ids[i], tokens[i] = ARGV[8 + i * 7], ARGV[9 + i * 7] end
  for i, held in ipairs(leases.held(ids, tokens)) do
    local id, seen = ids[i], batch.by_id[ids[i]]
    if held and not seen then
      local job, n, writes = settle.running_job(id), #batch.settled + 1, batch.writes
      local options, kind = jobs.options(job.options), ARGV[10 + i * 7]
      batch.by_id[id], batch.verdicts[i], batch.settled[n], batch.ids[n], batch.locks[n] = job, OK, i, id, P .. id .. K.lock
      writes[kind == 'c' and 'completed' or 'failed'] = true
      if kind == 'w' then writes.rests = true end
      if options.de or job.parent or job.deferred then writes.failed = true end  -- its end may release another job
      if options.toril or options.removeOnComplete ~= true then writes.kept = true end
    else
      batch.verdicts[i] = (seen or call('EXISTS', P .. id) == 1) and LOST or MISSING
    end
  end
  return batch
end

-- Settle what was looked at. The first write is one that a full server allows, so that it allows those that follow, and
-- jobs can end.
function settle.batch(batch)
  local ids = batch.ids
  if #ids == 0 then return call('DEL', P .. K.lock) end
  line.leave_active(ids, line.running)
  jobs.check_sample()
  jobs.delete_keys(batch.locks)
  line.running = line.running - #ids
  call('ZREM', P .. K.deadlines, unpack(ids))
  if call('TYPE', P .. K.stalled).ok == 'set' then call('SREM', P .. K.stalled, unpack(ids)) end
  local with_children = {}
  for n = 1, #ids do
    local at = 8 + batch.settled[n] * 7
    if ARGV[at + 2] == 'w' and ARGV[at + 3] ~= '[]' then
      with_children[#with_children + 1] = at
    else
      settle.one(ids[n], batch.by_id[ids[n]], unpack(ARGV, at + 2, at + 6))
    end
  end
  settle.flush_released()
  finish.flush()
  -- Who brings children may adopt a job that ends in this very step: all other ends are written before. The last one
  -- first, as each that need not wait goes to the very front.
  for n = #with_children, 1, -1 do
    local at = with_children[n]
    settle.one(ARGV[at], settle.running_job(ARGV[at]), unpack(ARGV, at + 2, at + 6))
    settle.flush_released()
    finish.flush()
  end
  groups.flush()
  if batch.writes.failed or groups.admitted_some then  -- some of them may run again, or others because of them
    line.count_ready()
    line.moved, line.delayed = true, call('ZCARD', P .. K.delayed)
  end
end
