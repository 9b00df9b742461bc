-- Note a worker's sign of life; hand over the orders that it has not heard.
-- KEYS    nothing, the fleet's base
-- ARGV    now, ttl, worker, the beat as JSON, since when it lives; words of the orders heard
-- Returns the orders that are left
-- Events  none
-- include begin
local worker, heard, left = ARGV[3], {}, {}
for i = 6, #ARGV do heard[ARGV[i]] = true end
local before = call('HGET', W .. G.workers, worker)
if before and before:match('"started_at": (%d+)') ~= ARGV[5] then
  call('HDEL', W .. G.orders, worker)  -- they were meant for an earlier worker of this name
end
call('HSET', W .. G.workers, worker, now .. ' ' .. ARGV[4])
call('ZADD', W .. G.workers_till, now + tonumber(ARGV[2]), worker)
if not before and ARGV[4]:find('"again": true', 1, true) then left[1] = 'declare' end  -- the store was emptied
local orders = call('HGET', W .. G.orders, worker) or ''
for word in orders:gmatch('%S+') do
  if not heard[word] then left[#left + 1] = word end
end
if not before or #left == 0 then
  call('HDEL', W .. G.orders, worker)
else
  call('HSET', W .. G.orders, worker, table.concat(left, ' '))
end
return left
