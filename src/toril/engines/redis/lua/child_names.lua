-- The names of a job's children, in the order in which they were added.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now; the job's key
-- Returns ["queue:id","name"] of each, with commas between; nothing if none is known
-- Events  none
-- uses nothing
return call('HGET', ARGV[2], F.children)
