-- Give up a role.
-- KEYS    the role's key, the fleet's base
-- ARGV    now, owner
-- Returns 1, or 0 if it was not the owner's
-- Events  none
-- uses nothing
local holder = (call('GET', P) or ''):match('^%d+ (.*)$')
return holder == ARGV[2] and call('DEL', P) or 0
