-- Effects of a child's end on its parent, in any queue.
-- needs groups
-- It is written by the step that ends the child. Where the parent's own keys are of wrong types nothing is: `try` leaves
-- those as they are.
local parents = {ended = {}}

-- A job's parent, from its field; nil if it has none.
function parents.link(text)
  local fine, link = pcall(cjson.decode, text or '')
  if not fine or type(link) ~= 'table' or type(link.queueKey) ~= 'string' or link.id == nil then return nil end
  link.id, link.base = tostring(link.id), link.queueKey .. ':'
  link.key, link.plain = link.base .. link.id, not (link.fpof or link.cpof or link.idof or link.rdof)
  return link
end

-- Where a job's dead letter lies, from the job's own key; and its id.
function parents.dead_letter_key(key)
  local name, id = key:sub(#PREFIX + 1):match('^([^:]*):(.*)$')
  local escaped = (id or ''):gsub('%%', '%%25'):gsub(':', '%%3A')
  local letter = (name or '') .. '/' .. escaped
  return PREFIX .. N.dead_letters .. ':' .. letter, letter
end

-- Whether nothing is left of a child: neither the job nor its dead letter.
function parents.is_gone(child)
  return call('EXISTS', child) == 0 and call('EXISTS', (parents.dead_letter_key(child))) == 0
end

-- Release a parent whose children have all ended.
function parents.release_if_done(link)
  if try('SCARD', link.key .. K.dependencies) == 0 then parents.release(link) end
end

-- Whether a job is delayed because it rests, for its children too. Other libraries move jobs on, and do not know of it.
function parents.rests(link)
  local text = try('HGET', link.key, F.rest)
  local since, till = (type(text) == 'string' and text or ''):match('^{"since":(%d+),"until":(%w+),"children":true')
  local score = since and tonumber(try('ZSCORE', link.base .. K.delayed, link.id) or nil)
  return score and math.floor(score / N.ties) == (tonumber(till) or since + N.longest_rest)
end

-- Let a parent go on that waits for its children, whether or not it rests for something else as well.
function parents.release(link)
  if parents.rests(link) then return parents.release_from(link, K.delayed, 'delayed') end
  return parents.release_from(link, K.waiting_children, 'waiting-children')
end

-- Make a parent fail for its child at its next claim, as in BullMQ, so that it fails in its own queue.
function parents.fail(link, reason)
  if try('EXISTS', link.key) ~= 1 then return end
  for _, name in ipairs({K.completed, K.failed}) do
    if try('ZSCORE', link.base .. name, link.id) then return end
  end
  try('HSET', link.key, F.deferred, reason, F.delay, 0)
  if not parents.release_from(link, K.waiting_children, 'waiting-children') then parents.release_from(link, K.delayed, 'delayed') end
end

-- Record in the parent how a child ended.
function parents.record_end(key, link, child, ending, text)
  if ending == 'completed' then
    try('HSET', key .. K.processed, child, text)
  elseif ending == 'failed' and link.fpof then
    try('ZADD', key .. K.unsuccessful, NOW, child)
  elseif ending == 'failed' and (link.cpof or link.idof) then
    try('HSET', key .. K.child_failures, child, text)
  end
end

-- `ending` is completed, failed or removed; `stays` says that a failed child can still be run again. A parent that is a dead
-- letter knows of it too: it may be run again.
function parents.child_ended(child, field, ending, text, stays)
  local link = parents.link(field)
  local failed = ending == 'failed'
  if not link or (failed and link.plain and stays) then return end
  if try('SREM', link.key .. K.dependencies, child) ~= 1 then
    local letter = parents.dead_letter_key(link.key)
    if try('SREM', letter .. K.dependencies, child) == 1 then parents.record_end(letter, link, child, ending, text) end
    return
  end
  parents.record_end(link.key, link, child, ending, text)
  if failed and link.fpof then
    if #text > 1000 then text = text:sub(1, 1000):gsub('[\128-\191]*$', ''):gsub('[\192-\255]$', '') end  -- do not cut a character in half
    return parents.fail(link, 'child ' .. child:sub(#PREFIX + 1) .. ' failed: ' .. text)
  elseif failed and link.cpof then
    return parents.release(link)
  end
  parents.release_if_done(link)
end

-- Let a parent go on that stands in this set: to the front, after its own delay if it has one.
function parents.release_from(link, name, prev)
  local base, id = link.base, link.id
  if try('ZREM', base .. name, id) ~= 1 then return false end
  local f = try('HMGET', link.key, F.delay, F.priority, F.group, F.order, F.rest)
  if f[5] then
    try('HDEL', link.key, F.rest)
    try('ZREM', base .. K.resting, id)
  end
  local delay, priority = context.number(f[1]) or 0, context.number(f[2], N.lowest_priority) or 0
  if f[3] and delay == 0 then  -- its group has to let it in: whoever claims next looks at that
    try('ZREM', base .. K.put_off, f[3] .. '\1' .. id)
    try('ZREM', base .. K.seats, f[3] .. '\1' .. id, f[3] .. '\2' .. id)  -- one that was put off may have kept it
    try('ZADD', base .. K.parked, 0, groups.member(f[3], f[4], priority, 'w', id))
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
  local meta, running = try('HMGET', base .. K.meta, F.is_paused, F.concurrency), try('LLEN', base .. K.active)
  local open = not meta.err and not meta[1] and type(running) == 'number'
  if open and running < math.floor(tonumber(meta[2] or nil) or math.huge) then try('ZADD', base .. K.marker, 0, '0') end
  return true
end

-- What a parent knows of its children. What holds it back while its flow is added is none.
function parents.child_counts(key, few)
  local open, first = call('SCARD', key .. K.dependencies), {}
  if open > 0 then
    if call('SISMEMBER', key .. K.dependencies, key .. K.hold) == 1 then open = open - 1 end
    for _, child in ipairs(call('SRANDMEMBER', key .. K.dependencies, few + 1)) do
      if child ~= key .. K.hold and #first < few then first[#first + 1] = child end
    end
  end
  table.sort(first)
  return {
    open, call('HLEN', key .. K.processed), call('HLEN', key .. K.child_failures), call('ZCARD', key .. K.unsuccessful), first,
  }
end

-- Parents are told at the end of a step, so that whom it lets go on is not met again by the step itself.
function parents.flush()
  local list = parents.ended
  parents.ended = {}
  for i = 1, #list do parents.child_ended(unpack(list[i], 1, 5)) end
end

-- What a job knows of its children goes where the job goes; but not what held it back while its flow was added.
function parents.move_children(from, to)
  call('SREM', from .. K.dependencies, from .. K.hold)
  for _, name in ipairs({K.processed, K.child_failures, K.dependencies, K.unsuccessful}) do
    if call('EXISTS', from .. name) == 1 then call('RENAME', from .. name, to .. name) end
  end
end

-- A child runs again: its parent waits for it again, if it still waits, or will when it runs again itself.
function parents.rejoin(id, field)
  local link = field and parents.link(field)
  if not link then return end
  local key = link.key
  if not parents.rests(link) and not try('ZSCORE', link.base .. K.waiting_children, link.id) and not try('ZSCORE', link.base .. K.failed, link.id) then
    key = parents.dead_letter_key(link.key)
    if try('EXISTS', link.key) == 1 or try('EXISTS', key) == 0 then return end
  end
  try('HDEL', key .. K.processed, P .. id)
  try('HDEL', key .. K.child_failures, P .. id)
  try('ZREM', key .. K.unsuccessful, P .. id)
  try('SADD', key .. K.dependencies, P .. id)
end
