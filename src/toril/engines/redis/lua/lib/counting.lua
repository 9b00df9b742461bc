-- How many jobs are in each state, and whether the queue is paused.

-- Versions before 5 put a marker among the jobs, at the next end; it is none of them.
local function line(key)
  local first = call('LINDEX', key, -1)
  return call('LLEN', key) - (first and first:sub(1, 2) == '0:' and 1 or 0)
end

local function counts(paused)
  return {
    line(P .. K.wait) + line(P .. K.paused) + call('ZCARD', P .. K.parked), call('ZCARD', P .. K.prioritized),
    call('LLEN', P .. K.active), call('ZCARD', P .. K.delayed), call('ZCARD', P .. K.waiting_children),
    call('ZCARD', P .. K.completed), call('ZCARD', P .. K.failed), paused,
  }
end

-- Workers that are alive: {worker, when seen and beat, orders}.
local function living()
  local found = {}
  for _, worker in ipairs(call('ZRANGEBYSCORE', W .. G.workers_till, '(' .. now, '+inf')) do
    found[#found + 1] = {worker, call('HGET', W .. G.workers, worker) or '', call('HGET', W .. G.orders, worker) or ''}
  end
  return found
end
