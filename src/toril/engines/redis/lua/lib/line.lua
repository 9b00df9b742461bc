-- The raw lists and sets in which jobs stand: ready, prioritized, delayed, active.
-- needs nothing
local line = {running = 0, ready = 0, prioritized = 0, delayed = 0, suspects = 0, moved = false, tops = {}}

-- How many are where: read once, and so of the right types. `moved`: what is ready has to be counted again after a claim.
function line.count()
  line.running, line.ready = call('LLEN', P .. K.active), call('LLEN', P .. K.wait)
  line.prioritized, line.delayed = call('ZCARD', P .. K.prioritized), call('ZCARD', P .. K.delayed)
  line.suspects = call('ZCARD', P .. K.suspects)
  line.moved = line.suspects > 0 or line.delayed > 0
end

-- Count those again that are ready.
function line.count_ready()
  line.ready, line.prioritized = call('LLEN', P .. K.wait), call('ZCARD', P .. K.prioritized)
end

-- The order within a millisecond is that of being delayed.
function line.delay(id, due)
  local top = line.tops[due]
  if not top then
    local found = call('ZREVRANGEBYSCORE', P .. K.delayed, (due + 1) * N.ties - 1, due * N.ties, 'WITHSCORES', 'LIMIT', 0, 1)
    top = tonumber(found[2]) or due * N.ties - 1
  end
  top = math.min(top + 1, (due + 1) * N.ties - 1)
  line.tops[due] = top
  call('ZADD', P .. K.delayed, top, id)
end

-- At the end of the line, behind all of its priority; in which state that is.
function line.push(id, priority)
  if priority == 0 then
    call('LPUSH', P .. K.wait, id)
    return 'waiting'
  end
  local count = call('INCR', P .. K.pc)
  if count == 1 then count = call('INCRBY', P .. K.pc, N.middle) end
  call('ZADD', P .. K.prioritized, priority * N.priorities + count % N.priorities, id)
  return 'prioritized'
end

-- Take many ids out of `active`. Where they are most of it, writing the rest anew is one step instead of many.
function line.leave_active(ids, running)
  if #ids < 4 or running > 4 * #ids then
    for i = 1, #ids do call('LREM', P .. K.active, -1, ids[i]) end
    return
  end
  local leaving, left = {}, {}
  for i = 1, #ids do leaving[ids[i]] = true end
  for _, id in ipairs(call('LRANGE', P .. K.active, 0, -1)) do
    if leaving[id] then leaving[id] = nil else left[#left + 1] = id end
  end
  call('DEL', P .. K.active)
  if #left > 0 then call('RPUSH', P .. K.active, unpack(left)) end
end
