-- How many children a job has, and the first few that have not ended.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now; the key of the job or of its dead letter, how many to name
-- Returns open, completed, ignored, failed, keys of open ones
-- Events  none
-- uses parents
return parents.child_counts(ARGV[2], tonumber(ARGV[3]))
