-- Workers that are alive.
-- KEYS    nothing, the fleet's base
-- ARGV    now
-- Returns {worker, when seen and heartbeat, commands}
-- Events  none
-- uses workers
return workers.living()
