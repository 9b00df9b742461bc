-- How jobs have ended, as far as the store can tell: from the job, from the result kept for who asked, from a run record,
-- or from the stream, which is all that is left of a job that another library's worker has ended and removed.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now; ids
-- Returns for each nothing; or `pending`; or the cause, the text, whether it is whole, and of a failed job kind and traces
-- Events  none
-- uses nothing
local found, missing, left = {}, {}, 0

local function look(id)
  if call('ZSCORE', P .. K.completed, id) then
    return {'completed', call('HGET', P .. id, F.result) or 'null', 1}
  elseif call('ZSCORE', P .. K.failed, id) then
    local f = call('HMGET', P .. id, F.reason, F.kind, F.trace)
    return {'failed', f[1] or 'unknown', 1, f[2] or '', f[3] or ''}
  end
  return {'pending'}
end

local function kept(id)
  local till = call('ZSCORE', P .. K.results_till, id)
  local packed = till and tonumber(till) > now and call('HGET', P .. K.results, id)
  local result = packed and cmsgpack.unpack(packed)
  return result and {result[1], result[2], 1}
end

for i = 2, #ARGV do
  local id = ARGV[i]
  found[i - 1] = call('EXISTS', P .. id) == 1 and look(id) or kept(id) or false
  if not found[i - 1] and not missing[id] then missing[id], left = {}, left + 1 end
end

-- The newest record of any ending. With few ids, a look at the packed text spares unpacking it.
local function may_be(packed)
  if left > 4 then return true end
  for id in pairs(missing) do
    if packed:find(id, 1, true) then return true end
  end
end

for _, key in ipairs(left > 0 and {K.runs_completed, K.runs_failed, K.runs_cancelled} or {}) do
  local seen = {}
  for _, packed in ipairs(call('LRANGE', P .. key, 0, N.runs - 1)) do
    local run = may_be(packed) and cmsgpack.unpack(packed)
    local best = run and missing[run[2]]
    if best and not seen[run[2]] then
      seen[run[2]] = true
      if not best[1] or run[7] > best[1] then missing[run[2]] = {run[7], {run[4], run[11], run[12] and 1 or 0}} end
    end
  end
end
-- The last word on those that nothing else tells of.
local function newest_ended()
  local unknown, last = {}, {}
  for id, best in pairs(missing) do
    if not best[2] then unknown[id] = true end
  end
  if not next(unknown) then return last end
  for _, entry in ipairs(call('XREVRANGE', P .. K.events, '+', '-', 'COUNT', N.recent_events)) do
    local e = {}
    for i = 1, #entry[2], 2 do e[entry[2][i]] = entry[2][i + 1] end
    if unknown[e.jobId] and last[e.jobId] == nil and e.event ~= 'retries-exhausted' then
      local text = e.event == 'completed' and e.returnvalue or e.event == 'failed' and e.failedReason
      last[e.jobId] = text and {e.cause == 'cancelled' and e.cause or e.event, text, 1} or false
    end
  end
  return last
end

local last = left > 0 and newest_ended()
for i = 2, #ARGV do
  if not found[i - 1] then found[i - 1] = missing[ARGV[i]][2] or last[ARGV[i]] or false end
end
return found
