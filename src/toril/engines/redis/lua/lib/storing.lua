-- include events
-- include places
-- Store one job and put it into its place; the state it is then in.
local function store(id, _, name, data, options, delay, due, priority, lifo, expires, metadata, key, _, _, group)
  priority, delay = tonumber(priority), tonumber(delay)
  due = due == '' and now + delay or math.max(tonumber(due), now)
  local fields = {F.name, name, F.data, data, F.opts, options, F.added_at, now, F.delay, due - now, F.priority, priority}
  if expires ~= '' then
    fields[13], fields[14] = F.expires, now + tonumber(expires)
    call('HSET', P .. K.toril, F.expiring, 1)
  end
  if due > now then fields[#fields + 1], fields[#fields + 2] = F.ready, due end
  if key and key ~= '' then fields[#fields + 1], fields[#fields + 2] = F.dedup, key end
  if metadata ~= '' then fields[#fields + 1], fields[#fields + 2] = F.metadata, metadata end
  local order = group and group ~= '' and groups.order(lifo == '1')
  if order then
    fields[#fields + 1], fields[#fields + 2], fields[#fields + 3], fields[#fields + 4] = F.group, group, F.order, order
  end
  call('HSET', P .. id, unpack(fields))
  event('added', 'jobId', id, 'name', name)
  if due > now then
    delay_until(id, due)
    if order then groups.put_off(id, group) end
    event('delayed', 'jobId', id, 'delay', due)
    return 'delayed'
  end
  event('waiting', 'jobId', id)
  if order then return groups.come(id, group, order, priority) end
  if lifo == '1' and priority == 0 then to_front(id, 0) else stand(id, priority) end
  return priority > 0 and 'prioritized' or 'waiting'
end
