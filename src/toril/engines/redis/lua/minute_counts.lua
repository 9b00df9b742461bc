-- Finished jobs a minute.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, how many minutes
-- Returns now; for completed and failed ones: count, prevTS, prevCount, the minutes before prevTS's, newest first
-- Events  none
-- uses metrics
return {now, metrics.minutes(K.metrics_completed, ARGV[2]), metrics.minutes(K.metrics_failed, ARGV[2])}
