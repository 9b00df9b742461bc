-- A batch has arrived in the other store.
-- KEYS    the base of any queue, the fleet's base
-- ARGV    now, its number, mark, the store it was for
-- Returns 1; 0 if it is not the one that is on its way
-- Events  none
-- uses nothing
local f = call('HMGET', W .. G.moving, 'number', 'mark', 'to', 'under_way')
if not f[4] or f[1] ~= ARGV[2] or f[2] ~= ARGV[3] or f[3] ~= ARGV[4] then return 0 end
call('DEL', W .. G.van)
call('HDEL', W .. G.moving, 'under_way')
return 1
