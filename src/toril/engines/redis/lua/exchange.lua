-- Hand in finished jobs, then take new ones, in one step.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; want, token, lease, worker, alone, max stalls, priorities first; rate: max, ms, window;
--         how many settlements, and for each: id, token, kind, text, shown, extra, trace
-- Returns verdicts, jobs (id, fence, suspect, fields and values as before the claim), now, wake_at, gate, suspects,
--         and {id, name, reason, kind} of those ended instead of handed out
-- Events  completed, failed, retries-exhausted, waiting, delayed, waiting-children, active, drained
-- include begin
-- include guard
-- include calls
-- include leases
local want, count, first = tonumber(ARGV[4]), tonumber(ARGV[14]), 15
local before, late = recalled()
if late then return late end
if before then
  local again, tokens = {}, {}
  for i = 1, #before[2] do tokens[i] = ARGV[5] end
  for i, held in ipairs(holds(before[2], tokens)) do
    local id = before[2][i]
    local row = held and call('HGETALL', P .. id)
    if held then
      local fence, suspect = call('HGET', P .. id, F.held):match('^(%d+) (%d)')
      for j = 1, #row, 2 do
        if row[j] == F.starts then row[j + 1] = tostring(row[j + 1] - 1) end  -- this start was not counted yet
      end
      again[#again + 1] = {id, tonumber(fence), tonumber(suspect), row}
    end
  end
  return {before[1], again, before[3], before[4], before[5], before[6], before[7] or {}}
end
-- include settings
-- include usual
-- include standing
-- include settle
-- include giving
-- include lines

-- Look at everything first, then write.
local ids, tokens, jobs, verdicts, settled, locks, kinds = {}, {}, {}, {}, {}, {}, {}
for i = 1, count do ids[i], tokens[i] = ARGV[first + (i - 1) * 7], ARGV[first + (i - 1) * 7 + 1] end
for i, held in ipairs(holds(ids, tokens)) do
  local id, seen = ids[i], jobs[ids[i]]
  if held and not seen then
    local job = running_job(id)
    local options, kind = options_of(job.options), ARGV[first + (i - 1) * 7 + 2]
    jobs[id], verdicts[i] = job, OK
    settled[#settled + 1], locks[#locks + 1] = i, P .. id .. K.lock
    kinds[kind == 'c' and 'completed' or 'failed'] = true
    if options.de or job.parent or job.deferred then kinds.failed = true end  -- its end may bring another job
    if options.toril or options.removeOnComplete ~= true then kinds.kept = true end
  else
    verdicts[i] = (seen or call('EXISTS', P .. id) == 1) and LOST or MISSING
  end
end
local mistake = wrong('zset', K.marker) or wrong('stream', K.events) or ((count == 0 or slack == 0) and wrong('zset', K.deadlines))
  or (kinds.completed and wrong_for_ending('completed', kinds.kept))
  or ((kinds.failed or own[3]) and wrong_for_ending('failed', true))
  or ((kinds.failed or prioritized + delayed > 0) and wrong('string', K.pc))
  or groups.wrong() or ((meta[3] or ARGV[11] ~= '') and (wrong('zset', K.starts) or wrong('string', K.limiter)))
if mistake then return mistake end
-- include settling
-- include taking
