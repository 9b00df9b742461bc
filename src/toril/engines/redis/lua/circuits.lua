-- All circuit breakers.
-- KEYS    the key of all circuits, the fleet's base
-- ARGV    now
-- Returns keys and texts by turns
-- Events  none
-- uses nothing
return call('HGETALL', P)
