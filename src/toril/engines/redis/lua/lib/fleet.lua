-- What the fleet knows of a worker.
local function declared_by(worker) return W .. G.declared .. worker .. ':declared' end

local function forget_worker(worker)
  call('ZREM', W .. G.workers_till, worker)
  call('HDEL', W .. G.workers, worker)
  call('HDEL', W .. G.orders, worker)
  call('DEL', declared_by(worker))
end
