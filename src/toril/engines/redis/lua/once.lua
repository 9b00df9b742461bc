-- Be the first to do a thing within a time.
-- KEYS    the thing's key, the fleet's base
-- ARGV    now, owner, ttl
-- Returns 1, to the first and to it again; 0 to others
-- Events  none
-- uses nothing
local owner, ttl = ARGV[2], tonumber(ARGV[3])
local till, holder = (call('GET', P) or ''):match('^(%d+) (.*)$')
if till and tonumber(till) > now then return holder == owner and 1 or 0 end
call('SET', P, now + ttl .. ' ' .. owner, 'PX', ttl + slack)
return 1
