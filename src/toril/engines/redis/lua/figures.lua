-- Finished jobs a minute.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, how many minutes
-- Returns now; for completed and failed ones: count, prevTS, prevCount, the minutes before prevTS's, newest first
-- Events  none
-- include begin
local answer = {now}
for _, name in ipairs({K.metrics_completed, K.metrics_failed}) do
  local f = call('HMGET', P .. name, F.count, F.prev_ts, F.prev_count)
  answer[#answer + 1] = {f[1], f[2], f[3], call('LRANGE', P .. name .. K.metrics_data, 0, ARGV[2] - 1)}
end
return answer
