-- include endings
-- include places
-- include handing
local unstarted, ended_early = {}, 0

-- Jobs whose time has come go to the end of their line, in the order of their time, a bounded number.
local function promote()
  if delayed == 0 then return end
  local due = call('ZRANGEBYSCORE', P .. K.delayed, 0, (now + 1) * N.ties - 1, 'LIMIT', 0, N.promoted)
  if #due == 0 then return end
  call('ZREM', P .. K.delayed, unpack(due))
  ready, prioritized = ready + #due, prioritized + #due  -- each is in one of them: both are looked into
  for i = 1, #due do
    local f = call('HMGET', P .. due[i], F.name, F.priority, F.group, F.order)
    if f[1] then
      if f[3] then groups.fall_due(due[i], f[3], f[4], as_number(f[2], N.lowest_priority) or 0) else stand(due[i], as_number(f[2], N.lowest_priority) or 0) end
      call('HSET', P .. due[i], F.delay, 0)
      event('waiting', 'jobId', due[i], 'prev', 'delayed')
    end
  end
  groups.flush()
end

-- End a job instead of starting it; where it has failed, that is an attempt.
local function end_early(id, f, cause, reason, kind)
  local made = (as_number(f[F.attempts_made]) or 0) + ((cause == 'expired' or cause == 'cancelled') and 0 or 1)
  local job = {
    name = f[F.name], added = f[F.added_at] or false, started = f[F.started_at] or false, made = made,
    stalls = as_number(f[F.stalls]) or 0, worker = f[F.worker] or false, options = f[F.opts], parent = f[F.parent],
    parked = f[F.parked], group = f[F.group],
  }
  fail_job(id, job, cause, reason, kind, '', reason:sub(1, 1024), #reason <= 1024)
  ended_early = ended_early + 1
  unstarted[ended_early] = {id, job.name, reason, kind}
end

-- Start a job, unless it is gone, too old, has been failed from afar, or cancelled where its worker did not look.
local function start(id, suspect)
  local key = P .. id
  local row, f = redis.pcall('HGETALL', key), {}
  for i = 1, #row, 2 do f[row[i]] = row[i + 1] end
  if not f[F.name] then return call('HINCRBY', P .. K.toril, F.ghosts, 1) end
  local expires, deferred, cancelled = f[F.expires], f[F.deferred], f[F.cancelling]
  if cancelled and f[F.started_at] then return end_early(id, f, 'cancelled', cancelled, 'JobCancelled') end
  if cancelled then call('HDEL', key, F.cancelling) end  -- somebody has had it run again since
  if expires and (tonumber(expires) or now + 1) <= now then
    return end_early(id, f, 'expired', 'expired: not started ' .. (f[F.starts] and 'again by ' or 'by ') .. expires, 'JobExpired')
  end
  if deferred then
    local kind = deferred:find('^child ') and 'ChildFailed' or 'Deferred'
    return end_early(id, f, deferred:find('stalled', 1, true) and kind == 'Deferred' and 'stalled' or 'failed', deferred, kind)
  end
  if not can_be_read(f[F.opts]) then
    return end_early(id, f, 'failed', 'its stored options cannot be read', 'Undecodable')
  end
  if f[F.group] and not groups.start(id, f[F.group], f[F.order], f[F.priority], suspect) then return end
  hand_out(id, row, f[F.starts], suspect)
end

-- The first `size` live jobs of what `pop` gives; those ended or parked on the way are a bounded number.
local function take(pop, size, suspect)
  local most = #taken + size
  while #taken < most and ended_early + groups.sent_off < N.expired do
    local ids = pop(most - #taken)
    if #ids == 0 then return end
    for i = 1, #ids do start(ids[i], suspect) end
  end
end
