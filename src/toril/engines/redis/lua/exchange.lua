-- Hand in finished jobs, then take new ones, in one step.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; want, token, lease, worker, alone, max stalls, priorities first; rate: max, ms, window;
--         how many settlements, and for each: id, token, kind, text, shown, extra, trace
-- Returns verdicts, jobs (id, fence, suspect, fields and values as before the claim), now, wake_at, gate, suspects
-- Events  completed, failed, retries-exhausted, waiting, delayed, active, drained
-- include begin
-- include guard
-- include calls
-- include leases
-- include marks
-- include settle
-- include lines
local want, count, first = tonumber(ARGV[4]), tonumber(ARGV[14]), 15
local before, late = recalled()
if late then return late end

-- A job's fields as the claim has seen them: this start was not counted yet.
local function fields_before(id)
  local row = call('HGETALL', P .. id)
  for i = 1, #row, 2 do
    if row[i] == F.starts then row[i + 1] = tostring(row[i + 1] - 1) end
  end
  return row
end

if before then
  local again, tokens = {}, {}
  for i = 1, #before[2] do tokens[i] = token end
  for i, held in ipairs(holds(before[2], tokens)) do
    if held then
      local fence, suspect = call('HGET', P .. before[2][i], F.held):match('^(%d+) (%d)')
      again[#again + 1] = {before[2][i], tonumber(fence), tonumber(suspect), fields_before(before[2][i])}
    end
  end
  return {before[1], again, before[3], before[4], before[5], before[6]}
end
local mistake = wrong({K.wait, K.active, K.prioritized, K.delayed, K.completed, K.failed, K.marker, K.events, K.meta,
  K.toril, K.deadlines, K.suspects, K.pc, K.stalled, K.runs_completed, K.runs_failed, K.ages, K.results, K.results_till,
  K.metrics_completed, K.metrics_failed, K.limiter, K.starts})
if mistake then return mistake end
call('DEL', P .. K.lock)  -- a write that a full server allows, so that it allows those that follow and jobs can end

local ids, tokens, seen, settled, verdicts, locks = {}, {}, {}, {}, {}, {}
for i = 1, count do ids[i], tokens[i] = ARGV[first + (i - 1) * 7], ARGV[first + (i - 1) * 7 + 1] end
for i, held in ipairs(holds(ids, tokens)) do
  local id, at = ids[i], first + (i - 1) * 7
  if held and not seen[id] then
    seen[id], verdicts[i] = true, OK
    settled[#settled + 1], locks[#locks + 1] = id, P .. id .. K.lock
    settle_one(id, running_job(id), ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5], ARGV[at + 6])
  else
    verdicts[i] = (seen[id] or call('EXISTS', P .. id) == 1) and LOST or MISSING
  end
end
if #settled > 0 then
  leave_active(settled)
  call('ZREM', P .. K.deadlines, unpack(settled))
  call('SREM', P .. K.stalled, unpack(settled))
  call('DEL', unpack(locks))
  flush_released()
  flush_endings()
end
-- include taking
