-- Workers that are alive.
-- KEYS    nothing, the fleet's base
-- ARGV    now
-- Returns {worker, when seen and beat, orders}
-- Events  none
-- include begin
-- include counting
return living()
