-- Hold a role for a term, unless another holds it.
-- KEYS    the role's key, the fleet's base
-- ARGV    now, owner, ttl
-- Returns 1 or 0
-- Events  none
-- uses nothing
local owner, ttl = ARGV[2], tonumber(ARGV[3])
local till, holder = (call('GET', P) or ''):match('^(%d+) (.*)$')
if till and tonumber(till) > now and holder ~= owner then return 0 end
call('SET', P, now + ttl .. ' ' .. owner, 'PX', ttl + slack)
return 1
