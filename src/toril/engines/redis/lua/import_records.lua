-- Add what another store's queue has counted and recorded to what this one has, once.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, that store, the batch's number, its mark; as JSON: for completed and failed ones {total, {minute, count}…,
--         records}, records of cancelled ones, slices {length, number, fields}, results {job, till, cause, text}, keys {key, owner, till}; the queue's name
-- Returns `stored`, `again` or `stale`; nothing
-- Events  none
-- uses queue metrics import
local before = import.seen_before()
if before then return {before, {}} end
local mistake = context.wrong('hash', K.toril, K.metrics_completed, K.metrics_failed, K.results)
  or context.wrong('list', K.runs_completed, K.runs_failed, K.runs_cancelled) or context.wrong('zset', K.results_till)
if mistake then return mistake end
local ledger = cjson.decode(ARGV[5])
queue.register(ARGV[6])
local completed, failed, cancelled, slices, results, keys = unpack(ledger)
metrics.merge_minutes(P .. K.metrics_completed, completed[1], completed[2])
metrics.merge_minutes(P .. K.metrics_failed, failed[1], failed[2])
metrics.merge_runs(K.runs_completed, F.runs_completed, completed[3])
metrics.merge_runs(K.runs_failed, F.runs_failed, failed[3])
metrics.merge_runs(K.runs_cancelled, F.runs_cancelled, cancelled)
local past = metrics.slices()
for _, each in ipairs(slices) do past.add(each[1], each[2], each[3]) end
for _, each in ipairs(results) do
  call('HSET', P .. K.results, each[1], cmsgpack.pack({each[3], each[4]}))
  call('ZADD', P .. K.results_till, each[2], each[1])
end
for _, each in ipairs(keys) do
  local left = tonumber(each[3]) - now
  if left > 0 and call('SET', P .. K.dedup .. each[1], each[2], 'PX', string.format('%.0f', left + slack), 'NX') and slack > 0 then
    call('HSET', P .. K.toril, 'de:' .. each[1], each[3])
  end
end
import.record_arrival()
return {'stored', {}}
