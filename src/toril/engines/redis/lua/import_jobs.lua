-- Store jobs and dead letters that come from another store, once.
-- KEYS    the base of any queue, the fleet's base
-- ARGV    now, that store, the batch's number, its mark; kinds (job, letter) and items as JSON
-- Returns `stored`, `again`, `stale` or `clash`; queue and id of those left out, or that clash
-- Events  none
-- uses import
return import.batch({job = import.job, letter = import.dead_letter})
