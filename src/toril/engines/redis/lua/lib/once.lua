-- include dedup
function REPEATED.reschedule(_, owner, _, state, _, _, _, _, delay, due)
  if state ~= 'delayed' then return end
  due = due == '' and now + tonumber(delay) or math.max(tonumber(due), now)
  call('ZREM', P .. K.delayed, owner)
  call('HSET', P .. owner, F.delay, due - now)
  delay_until(owner, due)
  event('delayed', 'jobId', owner, 'delay', due)
end
function REPEATED.keep_last(key, _, _, state, id, name, data, options, _, due, expires, metadata, group)
  if state ~= 'active' then return end
  call('DEL', next_of(key))
  call('HSET', next_of(key), F.name, name, F.data, data, F.opts, options, 'jid', id)
  if expires ~= '' then call('HSET', next_of(key), F.expires, expires) end
  if metadata ~= '' then call('HSET', next_of(key), F.metadata, metadata) end
  if group ~= '' then call('HSET', next_of(key), F.group, group) end
  if due ~= '' then keep_due(key, options, due) end
end

-- Store a job unless its key has an owner: {id, how, state} of the job that there is then.
local function store_once(id, _, name, data, options, delay, due, priority, lifo, expires, metadata, key, mode, ttl, group)
  local owner, how = owner_of(key), 0
  ttl = mode ~= 'keep_last' and tonumber(ttl) or nil
  if owner then
    local state = state_of(owner)
    local makes_way = REPEATED[mode](key, owner, ttl, state, id, name, data, options, delay, due, expires, metadata, group)
    local old, new = owner, id
    if makes_way then old, new = id, owner end
    event('deduplicated', 'jobId', old, 'deduplicationId', key, 'deduplicatedJobId', new)
    if not makes_way then return {owner, 2, state or 'completed'} end
    how = 3
  end
  take_key(key, id, ttl)
  return {id, how, store(id, nil, name, data, options, delay, due, priority, lifo, expires, metadata, key, nil, nil, group)}
end
