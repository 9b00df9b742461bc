-- Finished jobs a minute.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, how many minutes
-- Returns now; for completed and failed ones: count, prevTS, prevCount, the minutes before prevTS's, newest first
-- Events  none
-- include begin
-- include reading
return {now, minutes_of(K.metrics_completed, ARGV[2]), minutes_of(K.metrics_failed, ARGV[2])}
