-- Jobs are stored: one of any kind, or plain ones in bulk.
-- needs calls events line groups
local new_jobs = {}

-- Store one job and put it into its place; the state it is then in.
function new_jobs.store(id, _, name, data, options, delay, due, priority, lifo, expires, metadata, key, _, _, group)
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
  local order = group and group ~= '' and groups.next_order(lifo == '1')
  if order then
    fields[#fields + 1], fields[#fields + 2], fields[#fields + 3], fields[#fields + 4] = F.group, group, F.order, order
  end
  call('HSET', P .. id, unpack(fields))
  events.add('added', 'jobId', id, 'name', name)
  if due > now then
    line.delay(id, due)
    if order then groups.delay(id, group) end
    events.add('delayed', 'jobId', id, 'delay', due)
    return 'delayed'
  end
  events.add('waiting', 'jobId', id)
  if order then return groups.admit(id, group, order, priority) end
  if lifo ~= '1' or priority > 0 then return line.push(id, priority) end
  call('RPUSH', P .. K.wait, id)
  return 'waiting'
end

-- Plain jobs, those of a name and options behind one another: without an id, a time, a priority or whatever else of their
-- own, they go to the end of the line.
function new_jobs.store_plain(number, count, longest)
  local ids, at, i = {}, 7, 0
  while i < count do
    local name, options, many = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
    for offset = 3, many + 2 do
      i = i + 1
      local id = string.format('%d', number + i)
      ids[i] = id
      -- The last two are said twice: a hash moves to a larger table with its fifth field, a part at each look into it, and
      -- would keep the old one, of 32 bytes, for as long as the job waits.
      call('HSET', P .. id, F.name, name, F.data, ARGV[at + offset], F.opts, options, F.added_at, NOW, F.delay, '0', F.priority, '0',
        F.delay, '0', F.priority, '0')
      call('XADD', EVENTS, '*', 'event', 'added', 'jobId', id, 'name', name)
      if i < count then call('XADD', EVENTS, '*', 'event', 'waiting', 'jobId', id) end
    end
    at = at + many + 3
  end
  call('XADD', EVENTS, 'MAXLEN', '~', events.longest(longest), '*', 'event', 'waiting', 'jobId', ids[count])
  call('LPUSH', P .. K.wait, unpack(ids))
end

-- The short way for a queue that is known, and has neither limits nor groups: it does what the rest of the script would do,
-- and needs none of its functions. Nothing is written if it is not sure.
function new_jobs.add_plain(count)
  local meta = redis.pcall('HMGET', P .. K.meta, F.max_events, F.is_paused, F.concurrency)
  local own = redis.pcall('HMGET', P .. K.toril, F.max_waiting, F.grouped)
  if not meta[1] or meta[2] or meta[3] or own.err or own[1] or own[2] then return end
  local marked = redis.pcall('ZSCORE', P .. K.marker, '0')
  if type(redis.pcall('GET', P .. K.id)) ~= 'string' or type(marked) == 'table' then return end
  if not context.fits('LLEN', K.wait) or not context.fits('XLEN', K.events) then return end
  local number = call('INCRBY', P .. K.id, count) - count
  new_jobs.store_plain(number, count, meta[1])
  if not marked then call('ZADD', P .. K.marker, '0', '0') end
  calls.remember(number + 1)
  return number + 1
end
