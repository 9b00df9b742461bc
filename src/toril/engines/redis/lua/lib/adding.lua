-- include events
-- include places
-- include states
-- Jobs of all kinds: each has ten arguments (id, name, data, options, delay, due, priority, lifo, expires, metadata).
local function arguments(i) return unpack(ARGV, 7 + (i - 1) * 10, 16 + (i - 1) * 10) end

-- How many are new, and which ids are taken by jobs that are there already.
local function look_up(count)
  local taken, fresh, seen = {}, 0, {}
  for i = 1, count do
    local id = arguments(i)
    if id ~= '' and not seen[id] then
      seen[id], taken[id] = true, call('EXISTS', P .. id) == 1 and (state_of(id) or 'waiting') or nil
      if not taken[id] then fresh = fresh + 1 end
    elseif id == '' then
      fresh = fresh + 1
    end
  end
  return fresh, taken
end

-- Store one job and put it into its place; the state it is then in.
local function store(id, _, name, data, options, delay, due, priority, lifo, expires, metadata)
  priority, delay = tonumber(priority), tonumber(delay)
  due = due == '' and now + delay or math.max(tonumber(due), now)
  local fields = {F.name, name, F.data, data, F.opts, options, F.added_at, now, F.delay, due - now, F.priority, priority}
  if expires ~= '' then
    fields[13], fields[14] = F.expires, now + tonumber(expires)
    call('HSET', P .. K.toril, F.expiring, 1)
  end
  if metadata ~= '' then fields[#fields + 1], fields[#fields + 2] = F.metadata, metadata end
  call('HSET', P .. id, unpack(fields))
  event('added', 'jobId', id, 'name', name)
  if due > now then
    delay_until(id, due)
    event('delayed', 'jobId', id, 'delay', due)
    return 'delayed'
  end
  if lifo == '1' and priority == 0 then to_front(id, 0) else to_back(id, priority) end
  event('waiting', 'jobId', id)
  return priority > 0 and 'prioritized' or 'waiting'
end

-- All of them; for each id, whether it was added (0) or taken (1), and its state.
local function store_all(count, number, taken)
  local answer, states = {}, {}
  for i = 1, count do
    local chosen = arguments(i)
    local id = chosen ~= '' and chosen or tostring(number + i)
    local state = taken[id] or states[id]
    if chosen ~= '' and state then
      event('duplicated', 'jobId', id)
      answer[i] = {id, 1, state}
    else
      if chosen ~= '' then  -- a result that was kept of an earlier job of this id is not this one's
        call('HDEL', P .. K.results, id)
        call('ZREM', P .. K.results_till, id)
      end
      states[id] = store(id, arguments(i))
      answer[i] = {id, 0, states[id]}
    end
  end
  return answer
end
