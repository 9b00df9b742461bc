-- Store jobs and dead letters that come from another store, once.
-- KEYS    the base of any queue, the fleet's base
-- ARGV    now, that store, the load's number, its mark; kinds (job, letter) and parcels as JSON
-- Returns `stored`, `again`, `stale` or `clash`; queue and id of those left out, or that clash
-- Events  none
-- include begin
-- include unloading
return unload({job = put_job, letter = put_letter})
