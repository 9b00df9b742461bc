-- include endings
-- include places
-- Jobs given into a claimer's hands: ARGV[5] token, [6] lease, [7] worker, [9] max stalls.
local token, deadline, worker = ARGV[5], now + tonumber(ARGV[6]), ARGV[7]
local taken, fence, ended_early = {}, nil, 0

-- Jobs whose time has come go to the end of their line, in the order of their time, a bounded number.
local function promote()
  local due = call('ZRANGEBYSCORE', P .. K.delayed, 0, (now + 1) * N.ties - 1, 'LIMIT', 0, N.promoted)
  if #due == 0 then return end
  call('ZREM', P .. K.delayed, unpack(due))
  for i = 1, #due do
    local priority = call('HGET', P .. due[i], F.priority)
    if priority then
      to_back(due[i], tonumber(priority) or 0)
      call('HSET', P .. due[i], F.delay, 0)
      event('waiting', 'jobId', due[i], 'prev', 'delayed')
    end
  end
end

-- End a job instead of starting it.
local function end_early(id, f, cause, reason, kind)
  local job = {
    name = f[1], added = f[3], started = false, made = tonumber(f[5]) or 0, stalls = tonumber(f[6]) or 0, worker = false,
    options = f[4],
  }
  fail_job(id, job, cause, reason, kind, '', reason:sub(1, 1024), #reason <= 1024)
  ended_early = ended_early + 1
end

-- Start a job, unless it is gone, too old, or has been failed from afar.
local function start(id, suspect)
  local f = redis.pcall('HMGET', P .. id, F.claim_fields)
  if f.err or not f[1] then
    call('HINCRBY', P .. K.toril, F.ghosts, 1)
    return
  end
  if f[13] and tonumber(f[13]) <= now then
    return end_early(id, f, 'expired', 'expired: not started by ' .. f[13], 'JobExpired')
  end
  if f[14] then
    local cause = f[14]:find('stalled', 1, true) and 'stalled' or 'failed'
    return end_early(id, f, cause, f[14], 'Deferred')
  end
  fence = fence + 1
  f[7] = (tonumber(f[7]) or 0) + 1
  call('HSET', P .. id, F.started_at, now, F.worker, worker, F.starts, f[7],
    F.held, fence .. ' ' .. suspect .. ' ' .. ARGV[9])
  call('SET', P .. id .. K.lock, token, 'PX', ARGV[6] + slack)
  event('active', 'jobId', id, 'prev', 'waiting')
  f[13], f[14], f[15] = id, fence, suspect
  taken[#taken + 1] = f
end

-- The first `size` live jobs of what `pop` gives; those that are ended on the way are a bounded number.
local function take(pop, size, suspect)
  local most = #taken + size
  while #taken < most and ended_early < N.expired do
    local ids = pop(most - #taken)
    if #ids == 0 then return end
    for i = 1, #ids do start(ids[i], suspect) end
  end
end
