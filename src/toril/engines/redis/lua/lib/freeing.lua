-- include parked
-- Parents that go on, in whatever queue they are.
local function rouse(base)
  local meta, running = try('HMGET', base .. K.meta, F.is_paused, F.concurrency), try('LLEN', base .. K.active)
  if meta.err or meta[1] or type(running) ~= 'number' then return end
  if running < math.floor(tonumber(meta[2] or nil) or math.huge) then try('ZADD', base .. K.marker, 0, '0') end
end

-- Let a parent go on that stands in this set: to the front, after its own delay if it has one.
local function free(link, name, prev)
  local base, id = link.base, link.id
  if try('ZREM', base .. name, id) ~= 1 then return false end
  local f = try('HMGET', link.key, F.delay, F.priority, F.group, F.order)
  local delay, priority = as_number(f[1]) or 0, as_number(f[2], N.lowest_priority) or 0
  if f[3] and delay == 0 then  -- its group has to let it in: whoever claims next looks at that
    try('ZREM', base .. K.put_off, f[3] .. '\1' .. id)
    try('ZREM', base .. K.seats, f[3] .. '\1' .. id, f[3] .. '\2' .. id)  -- one that was put off may have kept it
    try('ZADD', base .. K.parked, 0, parked_as(f[3], f[4], priority, 'w', id))
    try('ZADD', base .. K.till, 0, f[3])
  elseif delay > 0 then
    if f[3] then try('ZADD', base .. K.put_off, 0, f[3] .. '\1' .. id) end
    try('ZADD', base .. K.delayed, (now + delay) * N.ties, id)
    local first = try('ZRANGE', base .. K.delayed, 0, 0, 'WITHSCORES')
    try('ZADD', base .. K.marker, math.floor((first[2] or 0) / N.ties), '1')
    return try('XADD', base .. K.events, '*', 'event', 'delayed', 'jobId', id, 'delay', now + delay)
  elseif priority > 0 then
    local count = try('INCR', base .. K.pc)
    if count == 1 then count = try('INCRBY', base .. K.pc, N.middle) end
    try('ZADD', base .. K.prioritized, priority * N.priorities + count % N.priorities, id)
  else
    try('RPUSH', base .. K.wait, id)
  end
  try('XADD', base .. K.events, '*', 'event', 'waiting', 'jobId', id, 'prev', prev)
  rouse(base)
  return true
end
