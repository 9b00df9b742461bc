-- The workers of the fleet, and how to wake one.
-- needs nothing
local workers = {}

-- Live workers: {worker, when seen and heartbeat, commands}.
function workers.living()
  local found = {}
  for _, worker in ipairs(call('ZRANGEBYSCORE', W .. G.workers_till, '(' .. now, '+inf')) do
    found[#found + 1] = {worker, call('HGET', W .. G.workers, worker) or '', call('HGET', W .. G.orders, worker) or ''}
  end
  return found
end

-- The key of what a worker declares about its queues.
function workers.declared_key(worker) return W .. G.declared .. worker .. ':declared' end

function workers.forget(worker)
  call('ZREM', W .. G.workers_till, worker)
  call('HDEL', W .. G.workers, worker)
  call('HDEL', W .. G.orders, worker)
  call('DEL', workers.declared_key(worker))
end

-- Wake a worker's process by the marker on which it blocks.
function workers.notify(worker)
  local marker = W .. G.poke .. worker .. ':poke'
  call('ZADD', marker, 0, '0')
  call('PEXPIRE', marker, N.remembered)
end
