-- Steps of running jobs; each counts only while its lease holds.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; for each row id, token, key, kind, text, took, digest or `-`, delay, until
-- Returns for each verdict, now, the row where the caller does not know it, how many rows the job has, their bytes
-- Events  none
-- uses calls leases metrics steps
local before = calls.recall()
if before then return before end
local mistake = context.wrong('zset', K.deadlines) or context.wrong('hash', K.toril)
if mistake then return mistake end

local OK, LOST, MISSING, FULL = 0, 1, 2, 3
local jobs_of, ids, tokens, answer = {}, {}, {}, {}
local function known(id)
  jobs_of[id] = jobs_of[id] or steps.of(id)
  return jobs_of[id]
end

local function write(job, name, kind, text, took, digest, delay, till)
  local there = steps.row(job, name)
  if not steps.counts(there, kind, till ~= '') then return {OK, now, there, job.count, job.bytes} end
  local row = steps.write(job, name, there, kind, took, digest, steps.timed(kind, text, delay, till))
  if not row then return {FULL, now, false, job.count, job.bytes} end
  metrics.count(F.records)
  local _, time = steps.parts(row)
  return {OK, now, time and row or false, job.count, job.bytes}
end

for i = 4, #ARGV, 9 do ids[#ids + 1], tokens[#tokens + 1] = ARGV[i], ARGV[i + 1] end
for i, held in ipairs(leases.held(ids, tokens)) do
  if held then
    answer[i] = write(known(ids[i]), unpack(ARGV, i * 9 - 3, i * 9 + 3))
  else
    answer[i] = {call('EXISTS', P .. ids[i]) == 1 and LOST or MISSING, now, false, 0, 0}
  end
end
metrics.flush()
calls.remember(answer)
return answer
