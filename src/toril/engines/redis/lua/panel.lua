-- Queues in figures, and the workers that are alive.
-- KEYS    nothing of the queues: several come together; the fleet's base
-- ARGV    now, how many minutes; the queues' bases
-- Returns now, workers; for each queue its counts, since when its oldest job waits, and for completed and failed ones:
--         count, prevTS, prevCount, the minutes before prevTS's, newest first
-- Events  none
-- include begin
-- include counting
-- include oldest
-- include reading
local queues = {}
for i = 3, #ARGV do
  P = ARGV[i]
  queues[#queues + 1] = {
    counts(call('HGET', P .. K.meta, F.is_paused)), oldest(), minutes_of(K.metrics_completed, ARGV[2]),
    minutes_of(K.metrics_failed, ARGV[2]),
  }
end
return {now, living(), queues}
