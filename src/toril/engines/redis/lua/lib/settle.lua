-- include endings
-- include places
-- include parking
-- include bare
-- Jobs that come back from those who ran them. Each counts only while its lease holds.
local OK, LOST, MISSING = 0, 1, 2
local FAILS = {f = 'failed', x = 'cancelled'}
local released, delayed_some, given_back = {}, false, false

-- The fields of a job that its end needs.
local function running_job(id)
  local f = call('HMGET', P .. id, F.name, F.added_at, F.started_at, F.attempts_made, F.stalls, F.worker, F.opts, F.priority, F.cancelling,
    F.parent, F.deferred, F.group, F.held, F.parked, F.starts, F.ready)
  return {
    name = f[1], added = f[2], started = f[3], made = as_number(f[4]) or 0, stalls = as_number(f[5]) or 0, worker = f[6],
    options = f[7], priority = as_number(f[8], N.lowest_priority) or 0, cancelling = f[9], parent = f[10], deferred = f[11], group = f[12],
    parked = f[14], starts = f[15], ready = f[16], suspect = (f[13] or ''):match('^%d+ 1 '), bare = bare.is(id, options_of(f[7]), f[15], f[14]),
  }
end

local function delay_job(id, job, delay, ...)
  call('HSET', P .. id, F.delay, delay, F.waited, delay, ...)
  if job.group then groups.put_off(id, job.group) end
  delay_until(id, now + delay)
  delayed_some = true
  event('delayed', 'jobId', id, 'delay', now + delay)
end

local function retry_job(id, job, delay, fields)
  if delay > 0 then
    delay_job(id, job, delay, F.attempts_made, job.made + 1, unpack(fields))
  else
    call('HSET', P .. id, F.attempts_made, job.made + 1, F.delay, 0, F.waited, 0, unpack(fields))
    if job.group then groups.give_up_seat(id, job.group) end
    to_back(id, job.priority)
    event('waiting', 'jobId', id, 'prev', 'active')
  end
end

-- `kind` is one letter: completed, failed, retried, snoozed, given back (l), cancelled (x), parked (p).
local function settle_one(id, job, kind, text, shown, extra, trace)
  figures.attempt(job, kind)
  local brief
  if kind == 'r' then trace, brief = trace:match('^([^\n]*)\n(.*)$') end
  local whole = shown == '='
  shown = whole and text or shown:sub(2)
  if job.cancelling and (kind == 'r' or kind == 's' or kind == 'l' or kind == 'p') then
    kind, text, shown, whole, extra, trace = 'x', job.cancelling, job.cancelling:sub(1, 1024), #job.cancelling <= 1024, 'JobCancelled', ''
  end
  if job.deferred and kind ~= 'f' and kind ~= 'x' then  -- a child's failure is its own
    kind, text, shown, whole, extra, trace = 'f', job.deferred, job.deferred:sub(1, 1024), #job.deferred <= 1024, 'ChildFailed', ''
  elseif kind == 'r' and job.made + 1 >= attempts_of(options_of(job.options)) then  -- there is no attempt left
    kind, extra, shown, whole = 'f', shown, text:sub(1, 1024), #text <= 1024
  elseif kind == 'p' then
    local rests, refusal = park(id, text, tonumber(extra))
    if rests then return job.group and groups.give_up_seat(id, job.group) end
    job.suspect, job.bare = nil, nil
    kind = refusal and 'f' or 'l'
    if refusal then text, shown, whole, extra, trace = refusal, refusal, true, 'WrongState', '' end
  end
  if kind == 'c' then
    job.made = job.made + 1
    call('XADD', EVENTS, '*', 'event', 'completed', 'jobId', id, 'returnvalue', text, 'prev', 'active')
    end_job('completed', id, job, 'completed', text, shown, whole, {F.result, text})
  elseif FAILS[kind] then
    job.made = job.made + 1
    fail_job(id, job, FAILS[kind], text, extra, trace, shown, whole)
    if kind == 'f' and job.made >= attempts_of(options_of(job.options)) then
      event('retries-exhausted', 'jobId', id, 'attemptsMade', job.made)
    end
  elseif kind == 'r' then
    figures.one(F.retried)
    local fields = failure_fields(id, job.options, text, shown, trace)
    fields[#fields + 1], fields[#fields + 2] = F.errors, errors_with(id, job.made + 1, brief)
    retry_job(id, job, tonumber(extra), fields)
  elseif kind == 's' then
    delay_job(id, job, tonumber(extra))
  else
    if job.group and not job.suspect then groups.give_up_seat(id, job.group) end
    released[#released + 1] = {id, job.priority, job.suspect}
    event('waiting', 'jobId', id, 'prev', 'active')
  end
end
