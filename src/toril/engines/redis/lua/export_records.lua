-- Take what a queue has counted and recorded.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, the queue's name, the store it is for, a mark; deduplication keys
-- Returns number, mark, items, now; nothing if there is nothing
-- Errors  TORILMOVING
-- Events  none
-- uses metrics export
local before = export.under_way()
if before then return before end
local mistake = context.wrong('hash', K.toril, K.metrics_completed, K.metrics_failed, K.results, K.figures, K.figures_past, K.figures_all)
  or context.wrong('list', K.runs_completed, K.runs_failed, K.runs_cancelled) or context.wrong('zset', K.results_till)
if mistake then return mistake end

local minute = tonumber(call('HGET', P .. K.figures, F.minute) or nil)
if minute then metrics.slices().close_minute(minute) end
call('HDEL', P .. K.toril, F.figures_minute, F.completed_minute)

local function runs_of(name)
  local found = call('LRANGE', P .. name, 0, N.runs - 1)
  for i = 1, #found do
    found[i] = metrics.unpack_run(found[i])
    found[i][12] = found[i][12] and 1 or 0
  end
  return found
end

-- Keys that are owned for a time by jobs that are gone.
local function ownerless()
  local found = {}
  for i = 5, #ARGV do
    local name = P .. K.dedup .. ARGV[i]
    local owner, left = redis.pcall('GET', name), redis.pcall('PTTL', name)
    if type(owner) == 'string' and left > 0 and call('EXISTS', P .. owner) == 0 then
      local till = tonumber(call('HGET', P .. K.toril, 'de:' .. ARGV[i]) or nil) or now + left
      found[#found + 1] = {ARGV[i], owner, string.format('%.0f', till)}
      call('DEL', name, P .. K.dedup_next .. ARGV[i])
      call('HDEL', P .. K.toril, 'de:' .. ARGV[i])
    end
  end
  return found
end

local results = {}
for _, id in ipairs(call('ZRANGE', P .. K.results_till, 0, -1)) do
  local text = call('HGET', P .. K.results, id)
  if text then results[#results + 1] = {id, call('ZSCORE', P .. K.results_till, id), unpack(cmsgpack.unpack(text))} end
end
local item = {'ledger', ARGV[2], metrics.minutes(K.metrics_completed, N.minutes), metrics.minutes(K.metrics_failed, N.minutes),
  {runs_of(K.runs_completed), runs_of(K.runs_failed), runs_of(K.runs_cancelled)}, call('HGETALL', P .. K.figures_past), call('HGETALL', P .. K.figures_all),
  results, ownerless()}
local some = item[3][1] or item[4][1] or #item[6] + #item[7] + #results + #item[9] > 0
for _, name in ipairs({K.metrics_completed, K.metrics_failed, K.runs_completed, K.runs_failed, K.runs_cancelled, K.figures_past, K.figures_all,
  K.results, K.results_till}) do
  call('DEL', P .. name, P .. name .. K.metrics_data)
end
return export.send(some and {item} or {})
