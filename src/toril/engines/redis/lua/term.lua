-- Hold a role for a term, or be the first to do a thing within one.
-- KEYS    the key of it, the fleet's base
-- ARGV    now, verb (lead, resign, once), owner, ttl
-- Returns 1 or 0
-- Events  none
-- include begin
local verb, owner, ttl = ARGV[2], ARGV[3], tonumber(ARGV[4])
local held = call('GET', P) or ''
local till, holder = held:match('^(%d+) (.*)$')
if verb == 'resign' then
  return holder == owner and call('DEL', P) or 0
end
local free = not till or tonumber(till) <= now
if free or (verb == 'lead' and holder == owner) then
  call('SET', P, now + ttl .. ' ' .. owner, 'PX', ttl + slack)
  return 1
end
return holder == owner and 1 or 0
