-- Progress, log lines, data and checkpoints of running jobs; each counts only while its lease holds.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; for each report id, token, kind (progress, log, data, checkpoint), text
-- Returns verdicts
-- Events  progress
-- uses calls events jobs leases
local before = calls.recall()
if before then return before end
local mistake = context.wrong('stream', K.events) or context.wrong('zset', K.deadlines)
  or context.wrong('hash', K.meta, K.toril)
if mistake then return mistake end

local function write_log(id, text)
  local keep = context.number(jobs.options(call('HGET', P .. id, F.opts)).kl) or 1000
  local key = P .. id .. K.logs
  if keep > 0 then
    call('RPUSH', key, text)
    call('LTRIM', key, -keep, -1)
    call('HSETNX', P .. K.toril, F.beside, 1)
  end
end

local FIELD = {data = F.data, checkpoint = F.checkpoint, progress = F.progress}
local ids, tokens, verdicts, has_event = {}, {}, {}, false
for i = 4, #ARGV, 4 do ids[#ids + 1], tokens[#tokens + 1] = ARGV[i], ARGV[i + 1] end
for i, held in ipairs(leases.held(ids, tokens)) do
  local id, kind, text = ids[i], ARGV[i * 4 + 2], ARGV[i * 4 + 3]
  verdicts[i] = held and 0 or (call('EXISTS', P .. id) == 1 and 1 or 2)
  if held and kind == 'log' then
    write_log(id, text)
  elseif held then
    call('HSET', P .. id, FIELD[kind], text)
    if kind == 'progress' then
      events.add('progress', 'jobId', id, 'data', text)
      has_event = true
    end
  end
end
if has_event then events.trim(call('HGET', P .. K.meta, F.max_events)) end
calls.remember(verdicts)
return verdicts
