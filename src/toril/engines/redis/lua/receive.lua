-- Read the oldest of some signals for a running job, and record it in the same step; or that the time is over.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; id, token, the row's key, digest or `-`; for each signal its name, key or nothing, both as JSON
-- Returns verdict, now, the row if there is one, how many rows the job has, their bytes
-- Events  none
-- uses calls leases metrics steps signals
local OK, LOST, MISSING, FULL, CLASH = 0, 1, 2, 3, 4
local id, name = ARGV[4], ARGV[6]
local held = leases.held({id}, {ARGV[5]})[1]
local lost = {call('EXISTS', P .. id) == 1 and LOST or MISSING, now, false, 0, 0}
local before = calls.recall()
if before and before[3] then  -- that a row was written is remembered, not the row: it may be long
  if not held then return lost end
  before[3] = call('HGET', P .. id, F.step .. name)
end
if before then return before end
local mistake = context.wrong('zset', K.deadlines, K.kept_till) or context.wrong('hash', K.toril, K.awaited, K.kept_signals)
if mistake then return mistake end

local job, waits, texts, over = nil, {}, {}, {}
for i = 8, #ARGV, 3 do
  waits[#waits + 1] = {ARGV[i], ARGV[i + 1]}
  texts[signals.name_of(ARGV[i], ARGV[i + 1])], over[signals.name_of(ARGV[i], ARGV[i + 1])] = ARGV[i + 2], true
end

local function write(there, text)
  local row = steps.write(job, name, there, 'w', '0', ARGV[7], text)
  if row then
    signals.stop_awaiting(id, over)
    metrics.count(F.records)
  end
  return row
end

-- What there is to read; verdict and row.
local function read()
  local there = steps.row(job, name)
  local kind, till = steps.parts(there)
  if there and not (kind and ('etp'):find(kind, 1, true)) then return OK, there end
  if not signals.await(id, waits) then return CLASH, false end
  till = kind == 'p' and till or '-'
  local signal, kept = signals.oldest(id, waits)
  if signal then
    local row = write(there, till .. ' ' .. texts[signals.name_of(signal[2], signal[3])] .. ' ' .. signal[6])
    if not row then return FULL, false end
    signals.take(id, signal, kept)
    return OK, row
  end
  if till == '-' or tonumber(till) > now then return OK, false end
  local row = write(there, till .. ' null')
  return row and OK or FULL, row or false
end

if not held then
  calls.remember(lost)
  return lost
end
job = steps.of(id)
local verdict, row = read()
metrics.flush()
calls.remember({verdict, now, row and true or false, job.count, job.bytes})
return {verdict, now, row, job.count, job.bytes}
