-- Workers that are alive.
-- KEYS    nothing, the fleet's base
-- ARGV    now
-- Returns {worker, when seen and beat, orders}
-- Events  none
-- include begin
local found = {}
for _, worker in ipairs(call('ZRANGEBYSCORE', W .. G.workers_till, '(' .. now, '+inf')) do
  found[#found + 1] = {worker, call('HGET', W .. G.workers, worker) or '', call('HGET', W .. G.orders, worker) or ''}
end
return found
