-- Leave a command for a living worker, and wake it.
-- KEYS    nothing, the fleet's base
-- ARGV    now, worker, command
-- Returns 1, or 0 if no such worker is alive
-- Events  none
-- uses workers
local worker, order = ARGV[2], ARGV[3]
local till = call('ZSCORE', W .. G.workers_till, worker)
if not till or tonumber(till) <= now then return 0 end
local orders = call('HGET', W .. G.orders, worker) or ''
if not (' ' .. orders .. ' '):find(' ' .. order .. ' ', 1, true) then
  call('HSET', W .. G.orders, worker, orders == '' and order or orders .. ' ' .. order)
end
workers.notify(worker)
return 1
