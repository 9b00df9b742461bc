-- Note a worker's heartbeat; answer the commands that it has not heard.
-- KEYS    nothing, the fleet's base
-- ARGV    now, ttl (0: it has stopped), worker, the heartbeat as JSON, since when it lives; how many commands it has heard, and
--         their words; queues and what it declares of them, none if that is as before
-- Returns the commands that are left
-- Events  none
-- uses workers
local worker, heard, left = ARGV[3], {}, {}
local declared = 7 + tonumber(ARGV[6])
for i = 7, declared - 1 do heard[ARGV[i]] = true end
local before = call('HGET', W .. G.workers, worker)
local replaced = before and before:match('"started_at": (%d+)') ~= ARGV[5]
if tonumber(ARGV[2]) == 0 then
  if before and not replaced then workers.forget(worker) end
  return left
end
if replaced then
  call('HDEL', W .. G.orders, worker)  -- they were meant for an earlier worker of this name
end
call('HSET', W .. G.workers, worker, now .. ' ' .. ARGV[4])
call('ZADD', W .. G.workers_till, now + tonumber(ARGV[2]), worker)
if declared < #ARGV then
  call('DEL', workers.declared_key(worker))
  for i = declared, #ARGV, 2 do call('HSET', workers.declared_key(worker), ARGV[i], NOW .. ' ' .. ARGV[i + 1]) end
end
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
