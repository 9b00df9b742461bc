-- Claims: which jobs, what prevents more, and when there may be more.
-- needs events queue jobs line groups group_maintenance rates leases finish steps
-- ARGV[4] want, [8] alone ('only': suspects only), [10] priorities first, [11] to [13] the claimer's own rate:
-- max, ms, window.
local claim = {unstarted = {}, step_bytes = 0}
local most_running

-- Move due jobs to the end of their line, in the order of their due times, a bounded number.
function claim.promote()
  if line.delayed == 0 then return end
  local due = call('ZRANGEBYSCORE', P .. K.delayed, 0, (now + 1) * N.ties - 1, 'LIMIT', 0, N.promoted)
  if #due == 0 then return end
  call('ZREM', P .. K.delayed, unpack(due))
  line.ready, line.prioritized = line.ready + #due, line.prioritized + #due  -- each is in one of them: both are looked into
  for i = 1, #due do
    local f = call('HMGET', P .. due[i], F.name, F.priority, F.group, F.order, F.rest)
    if f[5] then steps.stop_resting(due[i]) end
    if f[1] then
      local priority = context.number(f[2], N.lowest_priority) or 0
      if f[3] then groups.due(due[i], f[3], f[4], priority) else line.push(due[i], priority) end
      call('HSET', P .. due[i], F.delay, 0)
      events.add('waiting', 'jobId', due[i], 'prev', 'delayed')
    end
  end
  groups.flush()
end

-- End a job instead of starting it; a failure counts as an attempt.
function claim.end_early(id, f, cause, reason, kind)
  local made = (context.number(f[F.attempts_made]) or 0) + ((cause == 'expired' or cause == 'cancelled') and 0 or 1)
  local job = {
    name = f[F.name], added = f[F.added_at] or false, started = f[F.started_at] or false, made = made,
    stalls = context.number(f[F.stalls]) or 0, worker = f[F.worker] or false, options = f[F.opts], parent = f[F.parent],
    parked = f[F.parked], group = f[F.group],
  }
  finish.fail(id, job, cause, reason, kind, '', reason:sub(1, 1024), #reason <= 1024)
  claim.unstarted[#claim.unstarted + 1] = {id, job.name, reason, kind}
end

-- Start a job, unless it is gone, has expired, was failed by another job, or was cancelled unnoticed by its worker.
function claim.start(id, suspect)
  local key = P .. id
  local row, f = redis.pcall('HGETALL', key), {}
  for i = 1, #row, 2 do f[row[i]] = row[i + 1] end
  if not f[F.name] then return call('HINCRBY', P .. K.toril, F.ghosts, 1) end
  local expires, deferred, cancelled = f[F.expires], f[F.deferred], f[F.cancelling]
  if cancelled and f[F.started_at] then return claim.end_early(id, f, 'cancelled', cancelled, 'JobCancelled') end
  if cancelled then call('HDEL', key, F.cancelling) end  -- it has been retried since
  if f[F.rest] then steps.stop_resting(id) end  -- another library has moved it
  if expires and (tonumber(expires) or now + 1) <= now then
    local by = f[F.starts] and 'again by ' or 'by '
    return claim.end_early(id, f, 'expired', 'expired: not started ' .. by .. expires, 'JobExpired')
  end
  if deferred then
    local kind = deferred:find('^child ') and 'ChildFailed' or 'Deferred'
    local stalled = kind == 'Deferred' and deferred:find('stalled', 1, true)
    return claim.end_early(id, f, stalled and 'stalled' or 'failed', deferred, kind)
  end
  if not jobs.is_readable(f[F.opts]) then
    return claim.end_early(id, f, 'failed', 'its stored options cannot be read', 'Undecodable')
  end
  if f[F.group] and not groups.start(id, f[F.group], f[F.order], f[F.priority], suspect) then return end
  leases.grant(id, row, f[F.starts], suspect)
  if f[F.steps] then claim.step_bytes = claim.step_bytes + (tonumber(f[F.steps]:match('%d+$') or nil) or 0) end
end

-- Whether as many jobs were ended or parked on the way as one claim may, or those taken have as much recorded.
function claim.has_passed_enough()
  return #claim.unstarted + groups.turned_away >= N.expired or claim.step_bytes >= N.claimed_steps
end

-- Claim the first `size` live jobs that `pop` returns.
function claim.from_place(pop, size, suspect)
  local most = #leases.taken + size
  while #leases.taken < most and not claim.has_passed_enough() do
    local ids = pop(queue.own[12] and 1 or most - #leases.taken)  -- one by one where they may have much recorded
    if #ids == 0 then return end
    for i = 1, #ids do claim.start(ids[i], suspect) end
  end
end

-- A suspect that is no longer in the line was claimed by another library's worker, or is gone.
function claim.pop_suspect()
  while line.suspects > 0 do
    local first = call('ZPOPMIN', P .. K.suspects)[1]
    line.suspects = line.suspects - 1
    if first and call('LREM', P .. K.wait, -1, first) > 0 then return {first} end
  end
  return {}
end

-- The next jobs in the line, skipping those that must run alone, which stay at the front.
function claim.pop_waiting(size)
  if line.suspects == 0 then
    local ids = call('RPOP', P .. K.wait, size) or {}
    line.ready = line.ready - #ids
    return ids
  end
  local found, passed = {}, {}
  while #found < size and #passed < N.passed do
    local ids = call('RPOP', P .. K.wait, size - #found) or {}
    if #ids == 0 then break end
    local marks = call('ZMSCORE', P .. K.suspects, unpack(ids))
    for i = 1, #ids do
      local list = marks[i] and passed or found
      list[#list + 1] = ids[i]
    end
  end
  for i = #passed, 1, -1 do call('RPUSH', P .. K.wait, passed[i]) end
  return found
end

function claim.pop_prioritized(size)
  if line.prioritized == 0 then return {} end
  local found, ids = call('ZPOPMIN', P .. K.prioritized, size), {}
  for i = 1, #found, 2 do ids[#ids + 1] = found[i] end
  line.prioritized = line.prioritized - #ids
  if #ids == 0 then call('DEL', P .. K.pc) end
  return ids
end

-- Claim up to `size` jobs: a suspect alone, else from the line, by precedence, and from groups when the line is empty.
function claim.from_line(size)
  if ARGV[8] ~= '' and size > 0 and line.suspects > 0 then claim.from_place(claim.pop_suspect, 1, 1) end
  if ARGV[8] == 'only' or #leases.taken > 0 then return end
  local first, second = claim.pop_waiting, claim.pop_prioritized
  if ARGV[10] == '1' then first, second = second, first end
  for _ = 1, N.passes do
    claim.from_place(first, size - #leases.taken, 0)
    if #leases.taken < size then claim.from_place(second, size - #leases.taken, 0) end
    if #leases.taken == size or claim.has_passed_enough() then return end
    if not groups.used() or groups.admit_more(size - #leases.taken) == 0 then return end
    line.ready, line.prioritized, line.moved = line.ready + size, line.prioritized + size, true  -- it is in one of the two
  end
end

-- How many jobs the gates let through, which gate is the narrowest, and when it opens.
function claim.room(want)
  if queue.meta[1] then return 0, 'paused' end
  local size, gate, opens = want, nil, nil
  if most_running and most_running - line.running < size then
    size, gate = math.max(0, most_running - line.running), 'concurrency'
  end
  rates.choose(queue.meta[3], queue.meta[4], queue.own[2], ARGV[11], ARGV[12], ARGV[13])
  local left, at = rates.left()
  rates.forget_old()
  local held = tonumber(queue.own[4] or nil)
  if held and held > now then left, at = 0, math.max(held, at or 0) end
  if left < size then size, gate, opens = left, 'rate', at end
  return size, gate, opens
end

-- When a claim that got too few jobs may get more.
function claim.wake_at()
  if ARGV[8] == 'only' then return end
  if line.ready > line.suspects or line.prioritized > 0 or groups.can_admit() then return now end
  local first = call('ZRANGE', P .. K.delayed, 0, 0, 'WITHSCORES')
  local due, till = first[2] and math.max(now, math.floor(first[2] / N.ties)), groups.next_time()
  return till and math.min(due or till, till) or due
end

-- Jobs are parked, and this claim could have had more: now and then it is looked whether that is as it should be. Where
-- others than Toril's workers hold seats, who do not tell when they are done, somebody has to come back for that.
function claim.check_seats(wake_at)
  if now - (tonumber(queue.own[8] or nil) or 0) < N.seat_check_every then return wake_at end
  call('HSET', P .. K.toril, F.seats_checked_at, NOW)
  groups.admitted_some = false
  group_maintenance.check_seats(N.seats_per_claim)
  if groups.admitted_some then return now end
  return group_maintenance.strangers and math.min(wake_at or now + N.seat_check_every, now + N.seat_check_every) or wake_at
end

-- Claim up to `want` jobs. Returns what prevents more, when there may be more, and how many suspects there are.
function claim.jobs(want)
  most_running = tonumber(queue.meta[2] or nil)
  most_running = most_running and (most_running < 0 and 0 or context.number(most_running))
  if want == 0 then return false, false, 0 end
  claim.promote()
  if groups.used() then groups.admit_due() end
  if groups.admitted_some then
    line.moved = true
    line.count_ready()
  end
  local size, shut, opens = claim.room(want)
  local last_fence = leases.fence
  if size > 0 then claim.from_line(size) end
  leases.record_granted()
  local count, suspects = #leases.taken, line.suspects
  rates.count_starts(count, last_fence)
  line.running = line.running + count
  if #claim.unstarted > 0 then finish.flush() end
  groups.flush()
  if groups.admitted_some then line.moved = true end
  if line.moved then line.count_ready() end
  if count == want then return false, false, suspects end
  if shut and count == size then return shut, opens or shut == 'rate' and now + rates.ms, suspects end
  local wake_at = claim.wake_at() or false
  if groups.any_parked() then return 'groups', claim.check_seats(wake_at), suspects end
  return false, wake_at, suspects
end

-- Set the marker for idle workers if there is more; `settled`: some jobs were settled in this step.
-- Suspects do not count: who runs something cannot take them, and would be woken again and again; but a mark that was set
-- for them stays. Nor is one set while the rate is shut: whoever finds it so comes back by the clock.
function claim.notify(want, gate, settled, released_suspect)
  if settled or #leases.taken > 0 or #claim.unstarted > 0 then
    local left = line.ready + line.prioritized + line.running
    if left == 0 and call('ZCARD', P .. K.delayed) == 0 and not groups.any_parked() then events.add('drained') end
    if #leases.taken == 0 then events.trim(queue.meta[5]) end
  end
  local open = not queue.meta[1] and not (most_running and line.running >= most_running)
  local worth = open and gate ~= 'rate'
  local turns = groups.can_admit() or (groups.changed and #leases.taken == want)
  if worth and (line.ready > line.suspects or line.prioritized > 0 or turns or (released_suspect and line.suspects > 0)) then
    call('ZADD', P .. K.marker, '0', '0')
  elseif (worth and line.suspects == 0) or not open then
    call('ZREM', P .. K.marker, '0')
  end
end
