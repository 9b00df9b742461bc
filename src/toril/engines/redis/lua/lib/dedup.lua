-- Deduplication keys, each owned by one job at a time.
-- needs events jobs line places parents new_jobs steps signals
-- `de:<key>` names the owner, for a time or until it ends; `dn:<key>` is a job to be made when it ends. Where the clock
-- is not the server's, the time is written beside.
local dedup = {repeated = {}}

function dedup.take(key, id, ttl)
  if ttl then call('SET', P .. K.dedup .. key, id, 'PX', ttl + slack) else call('SET', P .. K.dedup .. key, id) end
  if slack > 0 and ttl then call('HSET', P .. K.toril, 'de:' .. key, now + ttl) end
  if slack > 0 and not ttl then call('HDEL', P .. K.toril, 'de:' .. key) end
end

-- A removed job no longer owns its key, and is nobody's child.
function dedup.disown(id)
  local f = call('HMGET', P .. id, F.dedup, F.parent)
  local key = f[1]
  if f[2] then parents.ended[#parents.ended + 1] = {P .. id, f[2], 'removed'} end
  if key and call('GET', P .. K.dedup .. key) == id then call('DEL', P .. K.dedup .. key, P .. K.dedup_next .. key) end
end

-- BullMQ's own workers know of no due time. They count the delay that stands in the options from when they store the job:
-- with the time that is left until it is due it comes later than that, by as long as its owner ran on, and never earlier.
function dedup.keep_due(key, options, due)
  local delay = string.format('{"delay":%.0f,', math.max(0, tonumber(due) - now))
  call('HSET', P .. K.dedup_next .. key, F.ready, due, F.opts, delay .. options:sub(2))
end

-- A job that has ended gives up its key, to the next job of the key.
function dedup.release(key, id)
  local owned, following = P .. K.dedup .. key, P .. K.dedup_next .. key
  if call('GET', owned) ~= id or call('PTTL', owned) ~= -1 then return end
  call('DEL', owned)
  local f = call('HMGET', following, F.name, F.data, F.opts, 'jid', F.expires, F.metadata, F.group, F.ready)
  call('DEL', following)
  if not f[1] or not f[4] or call('EXISTS', P .. f[4]) == 1 then return end
  if f[3] and f[8] then f[3] = f[3]:gsub('^{"delay":%d+,', '{', 1) end  -- see keep_due
  local options = jobs.options(f[3])
  dedup.take(key, f[4])
  new_jobs.store(f[4], nil, f[1], f[2] or '{}', f[3] or '{}', context.number(options.delay) or 0, context.number(f[8]) or '',
    context.number(options.priority, N.lowest_priority) or 0, options.lifo and '1' or '', context.number(f[5]) or '', f[6] or '',
    key, nil, nil, f[7])
  places.mark_due()
end

-- The owner of a key. An owner that is gone without having ended has given it up.
function dedup.owner_of(key)
  local owned = P .. K.dedup .. key
  local owner = call('GET', owned)
  if not owner then return nil end
  local till = slack > 0 and tonumber(call('HGET', P .. K.toril, 'de:' .. key) or nil)
  if till and till <= now then
    call('DEL', owned, P .. K.dedup_next .. key)
    return nil
  elseif call('PTTL', owned) == -1 and call('EXISTS', P .. owner) == 0 then
    dedup.release(key, owner)
    return call('GET', owned) or nil
  end
  return owner
end

-- `dedup.repeated` says what it does to the owner of a key, or to the key, if a job is added once more. True if the new one
-- takes its place.
function dedup.repeated.drop() end

function dedup.repeated.extend(key, owner, ttl) dedup.take(key, owner, ttl) end

function dedup.repeated.replace(_, owner, _, state)
  if state ~= 'delayed' then return false end
  places.leave(owner, state)
  signals.leave(owner)
  jobs.delete(owner)
  jobs.flush_deleted()
  events.add('removed', 'jobId', owner, 'prev', 'delayed')
  return true
end

function dedup.repeated.reschedule(_, owner, _, state, _, _, _, _, delay, due)
  if state ~= 'delayed' then return end
  due = due == '' and now + tonumber(delay) or math.max(tonumber(due), now)
  call('ZREM', P .. K.delayed, owner)
  call('HSET', P .. owner, F.delay, due - now)
  line.delay(owner, due)
  events.add('delayed', 'jobId', owner, 'delay', due)
end

function dedup.repeated.keep_last(key, _, _, state, id, name, data, options, _, due, expires, metadata, group)
  if state ~= 'active' then return end
  local following = P .. K.dedup_next .. key
  call('DEL', following)
  call('HSET', following, F.name, name, F.data, data, F.opts, options, 'jid', id)
  if expires ~= '' then call('HSET', following, F.expires, expires) end
  if metadata ~= '' then call('HSET', following, F.metadata, metadata) end
  if group ~= '' then call('HSET', following, F.group, group) end
  if due ~= '' then dedup.keep_due(key, options, due) end
end

-- Store a job unless its key has an owner: {id, how, state} of the job that there is then.
function dedup.store(id, _, name, data, options, delay, due, priority, lifo, expires, metadata, key, mode, ttl, group)
  local owner, how = dedup.owner_of(key), 0
  ttl = mode ~= 'keep_last' and tonumber(ttl) or nil
  if owner then
    local state = places.state(owner)
    local as = steps.rest_of(owner) and 'active' or state  -- one that rests is as one that runs
    local makes_way = dedup.repeated[mode](key, owner, ttl, as, id, name, data, options, delay, due, expires, metadata, group)
    local old, new = owner, id
    if makes_way then old, new = id, owner end
    events.add('deduplicated', 'jobId', old, 'deduplicationId', key, 'deduplicatedJobId', new)
    if not makes_way then return {owner, 2, state or 'completed'} end
    how = 3
  end
  dedup.take(key, id, ttl)
  return {id, how, new_jobs.store(id, nil, name, data, options, delay, due, priority, lifo, expires, metadata, key, nil, nil, group)}
end
