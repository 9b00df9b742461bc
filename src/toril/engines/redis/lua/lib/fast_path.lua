-- The usual exchange, run before anything else is defined.
-- needs calls events queue jobs line metrics leases
-- That is: jobs that have completed and are not kept, of a queue without groups, limits, priorities and suspects, whose
-- next jobs can start. It does what all the subjects after it would do, which a script has to define before it can call
-- them: for a few jobs that takes longer than the work. Whatever it is not sure of it leaves to them, unchanged.
local fast_path = {}

-- Jobs that are settled, their ids, and these as a set; nil if one is not as usual: see `run`.
function fast_path.ended_jobs(count)
  local ids, tokens, found, seen = {}, {}, {}, {}
  for i = 1, count do
    local at = 8 + i * 7
    if ARGV[at + 2] ~= 'c' or seen[ARGV[at]] or context.is_reserved(ARGV[at]) then return end
    ids[i], tokens[i], seen[ARGV[at]] = ARGV[at], ARGV[at + 1], true
  end
  local held = leases.held(ids, tokens)
  for i = 1, count do
    if not held[i] then return end
    local f = call('HMGET', P .. ids[i], F.name, F.added_at, F.started_at, F.attempts_made, F.stalls, F.worker, F.opts, F.parent,
      F.deferred, F.group, F.starts, F.ready, F.parked)
    local options = jobs.options(f[7])
    local own = options.toril
    if not f[1] or f[8] or f[9] or f[10] or options.removeOnComplete ~= true or options.de then return end
    if own and (type(own) ~= 'table' or own.resultTtl) then return end
    if queue.own[12] and call('HEXISTS', P .. ids[i], F.awaits) == 1 then return end
    found[i] = {
      name = f[1], added = f[2], started = f[3], made = (context.number(f[4]) or 0) + 1, stalls = context.number(f[5]) or 0,
      worker = f[6], options = f[7], subject = own and own.subject, starts = f[11], ready = f[12], parked = f[13],
      bare = jobs.bare(ids[i], options, f[11], f[13]),
    }
  end
  return found, ids, seen
end

-- Those to be claimed, and whether there are more; nil if one is not as usual. One that stands in the line twice, or has
-- just ended, must be looked at again after what is done to it first.
function fast_path.next_jobs(seen, want)
  local ids, found = call('LRANGE', P .. K.wait, string.format('%d', -want - 1), '-1'), {}
  for i = #ids, math.max(1, #ids - want + 1), -1 do
    local row, name, options, starts = redis.pcall('HGETALL', P .. ids[i]), nil, nil, nil
    for j = 1, #row, 2 do
      local field, value = row[j], row[j + 1]
      if field == F.name then name = value
      elseif field == F.opts then options = value
      elseif field == F.starts then starts = value
      elseif field == F.cancelling or field == F.deferred or field == F.group then return
      elseif field == F.expires and (tonumber(value) or now + 1) <= now then return end
    end
    if not name or seen[ids[i]] or not jobs.is_readable(options) then return end
    if queue.own[12] and call('HEXISTS', P .. ids[i], F.steps) + call('HEXISTS', P .. ids[i], F.rest) > 0 then return end
    seen[ids[i]], found[#found + 1] = true, {ids[i], row, starts, 0}
  end
  return found, #ids > want
end

-- End all of these jobs.
function fast_path.settle(ended, ids, running)
  local runs = {}
  line.leave_active(ids, running)
  jobs.check_sample()
  call('ZREM', P .. K.deadlines, unpack(ids))
  for i = 1, #ids do
    local at = 8 + i * 7
    local text, shown = ARGV[at + 3], ARGV[at + 4]
    call('XADD', EVENTS, '*', 'event', 'completed', 'jobId', ids[i], 'returnvalue', text, 'prev', 'active')
    local job, whole = ended[i], shown == '='
    runs[i] = metrics.run_record(ids[i], job, 'completed', whole and text or shown:sub(2), whole, job.subject)
    metrics.count_attempt(job, 'c')
    jobs.delete(ids[i], job.bare)
  end
  metrics.flush()
  metrics.record_runs('completed', runs)
  jobs.flush_deleted()
  call('PUBLISH', P .. K.ended, table.concat(ids, '\n'))
end

-- The answer, or nil if this exchange is not a usual one; then nothing is written.
function fast_path.run(want, count)
  local meta, own = queue.meta, queue.own
  if ARGV[8] ~= '' or ARGV[11] ~= '' or meta[1] or meta[2] or meta[3] or own[5] then return end
  if (tonumber(own[4] or nil) or 0) > now then return end
  local there = call('EXISTS', P .. K.delayed, P .. K.prioritized, P .. K.suspects, P .. K.stalled)
  local due = there > 0 and call('ZRANGE', P .. K.delayed, '0', '0', 'WITHSCORES')[2]
  due = due and math.floor(due / N.ties)
  if (due and due <= now) or there > (due and 1 or 0) then return end
  local ended, ids, seen = fast_path.ended_jobs(count)
  if not ended then return end
  local next_ones, more = fast_path.next_jobs(seen, want)
  if not next_ones then return end
  if not context.fits('XLEN', K.events) or ((count == 0 or slack == 0) and not context.fits('ZCARD', K.deadlines))
    or (count > 0 and not (context.fits('LLEN', K.runs_completed) and context.fits('HLEN', K.metrics_completed))) then return end
  local running, marked = call('LLEN', P .. K.active), redis.pcall('ZSCORE', P .. K.marker, '0')
  if type(marked) == 'table' then return end
  if count > 0 then fast_path.settle(ended, ids, running) else call('DEL', P .. K.lock) end
  local one = #next_ones == 1
  if one then call('LMOVE', P .. K.wait, P .. K.active, 'RIGHT', 'LEFT')
  elseif #next_ones > 1 then call('RPOP', P .. K.wait, string.format('%d', #next_ones)) end
  for i = 1, #next_ones do leases.grant(unpack(next_ones[i], 1, 4)) end
  leases.record_granted(one)
  if count > 0 and #leases.taken == 0 then
    if not more and running == count and not due then events.add('drained') end
    events.trim(meta[5])
  end
  if more and not marked then call('ZADD', P .. K.marker, '0', '0') end
  if marked and not more then call('ZREM', P .. K.marker, '0') end
  local verdicts, wake_at = {}, #leases.taken < want and due or false
  for i = 1, count do verdicts[i] = 0 end
  calls.remember({verdicts, leases.taken_ids, now, wake_at, false, 0, {}})
  return {verdicts, leases.taken, now, wake_at, false, 0, {}}
end
