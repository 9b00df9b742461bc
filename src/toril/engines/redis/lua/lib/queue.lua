-- A queue's settings and counts, and when it becomes known.
-- needs nothing
local queue = {meta = false, own = false}

-- Read the queue's settings and counters.
function queue.read_settings()
  queue.meta = call('HMGET', P .. K.meta, F.is_paused, F.concurrency, F.rate_max, F.rate_ms, F.max_events, F.version)
  queue.own = call('HMGET', P .. K.toril, F.claims, F.window, F.expiring, F.held_till, F.grouped, F.groups_set,
    F.groups_declared, F.seats_checked_at, F.figures_minute, F.completed_minute, F.beside, F.stepping)
end

-- A queue is known from its first job or setting on. Gives the bound of its stream.
function queue.register(name)
  local most = call('HGET', P .. K.meta, F.max_events)
  if most then return most end
  call('HSET', P .. K.meta, F.max_events, N.events)
  call('SADD', W .. G.queues, name)
  return tostring(N.events)
end

-- Versions before 5 put a marker among the jobs, at the next end; it is none of them.
function queue.list_length(key)
  local first = call('LINDEX', key, -1)
  return call('LLEN', key) - (first and first:sub(1, 2) == '0:' and 1 or 0)
end

-- How many jobs are in each state, and whether the queue is paused.
function queue.counts(paused)
  return {
    queue.list_length(P .. K.wait) + queue.list_length(P .. K.paused) + call('ZCARD', P .. K.parked),
    call('ZCARD', P .. K.prioritized),
    call('LLEN', P .. K.active), call('ZCARD', P .. K.delayed), call('ZCARD', P .. K.waiting_children),
    call('ZCARD', P .. K.completed), call('ZCARD', P .. K.failed), call('ZCARD', P .. K.resting), paused,
  }
end
