-- Where jobs stand while they do not run.
local tops = {}

-- The order within a millisecond is that of being delayed.
local function delay_until(id, due)
  local top = tops[due]
  if not top then
    local found = call('ZREVRANGEBYSCORE', P .. K.delayed, (due + 1) * N.ties - 1, due * N.ties, 'WITHSCORES', 'LIMIT', 0, 1)
    top = tonumber(found[2]) or due * N.ties - 1
  end
  top = math.min(top + 1, (due + 1) * N.ties - 1)
  tops[due] = top
  call('ZADD', P .. K.delayed, top, id)
end

local function priority_score(priority)
  local count = call('INCR', P .. K.pc)
  if count == 1 then count = call('INCRBY', P .. K.pc, N.middle) end
  return priority * N.priorities + count % N.priorities
end

-- At the end of the line; in which state that is.
local function stand(id, priority)
  if priority > 0 then
    call('ZADD', P .. K.prioritized, priority_score(priority), id)
    return 'prioritized'
  end
  call('LPUSH', P .. K.wait, id)
  return 'waiting'
end
-- include groups

-- A job of a group takes its place in that: true. Others know nothing of groups.
local function to_group(id, priority)
  local f = groups.used() and call('HMGET', P .. id, F.group, F.order)
  if f and f[1] then groups.come(id, f[1], f[2], priority) end
  return f and f[1]
end

local function to_back(id, priority)
  if not to_group(id, priority) then stand(id, priority) end
end

local function to_front(id, priority)
  if to_group(id, priority) then return end
  if priority == 0 then
    call('RPUSH', P .. K.wait, id)
    return
  end
  local low = priority * N.priorities
  local first = call('ZRANGEBYSCORE', P .. K.prioritized, low, low + N.priorities - 1, 'WITHSCORES', 'LIMIT', 0, 1)
  local score = first[2] and math.max(low, first[2] - 1) or priority_score(priority)
  call('ZADD', P .. K.prioritized, score, id)
end
-- include active
