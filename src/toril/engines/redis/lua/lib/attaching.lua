-- include deciding
-- A parent, as `store` stores others: a delay of its own begins when its children have ended.
local function store_parent(node)
  local n = node.n
  local delay = n[7] == '' and tonumber(n[6]) or math.max(0, tonumber(n[7]) - now)
  call('HSET', node.key, F.name, n[3], F.data, n[4], F.opts, n[5], F.added_at, NOW, F.delay, delay, F.priority, n[8], F.parked, 0)
  if n[10] ~= '' then
    call('HSET', node.key, F.expires, now + tonumber(n[10]))
    call('HSET', P .. K.toril, F.expiring, 1)
  end
  if n[11] ~= '' then call('HSET', node.key, F.metadata, n[11]) end
  if n[16] ~= '' then call('HSET', node.key, F.group, n[16], F.order, groups.order(n[9] == '1')) end
  call('ZADD', P .. K.waiting_children, NOW, n[2])
  event('added', 'jobId', n[2], 'name', n[3])
  event('waiting-children', 'jobId', n[2])
  return 'waiting_children'
end

local function with_parent(node, opts)
  return '{' .. node.opts .. (opts:match('^%s*{%s*}') and '' or ',') .. opts:match('^%s*{(.*)$')
end

local function store_node(node)
  local n = node.n
  call('INCR', P .. K.id)
  know_queue(n[1])
  call('HDEL', P .. K.results, n[2])
  call('ZREM', P .. K.results_till, n[2])
  if node.parent then n[5] = with_parent(node, n[5]) end
  if node.waits then
    node.state = store_parent(node)
  else
    node.state = store(n[2], nil, n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10], n[11], nil, nil, nil, n[16])
  end
end

local function adopt(node)
  local opts = call('HGET', node.key, F.opts) or '{}'
  if not opts:find('"parent"', 1, true) then call('HSET', node.key, F.opts, with_parent(node, opts)) end
end

local function write_all()
  local bases, names = {}, {}
  for i = 1, #nodes do
    local node = nodes[i]
    at(node.base)
    if node.how == 'new' then store_node(node) elseif node.how == 'kept' then adopt(node) end
    if node.parent and (node.how == 'new' or node.how == 'kept') then
      call('HSET', node.key, F.parent_key, node.parent, F.parent, node.link)
      names[node.parent] = names[node.parent] or {}
      table.insert(names[node.parent], cjson.encode({node.name, node.n[3]}))
      if node.state == 'completed' then
        call('HSET', node.parent .. K.processed, node.key, call('HGET', node.key, F.result) or 'null')
      else
        call('SADD', node.parent .. K.dependencies, node.key)
      end
    end
    bases[node.base] = true
  end
  for parent, list in pairs(names) do  -- in the order in which they are added, of which BullMQ's own keys know nothing
    local before = call('HGET', parent, F.children)
    call('HSET', parent, F.children, (before and before .. ',' or '') .. table.concat(list, ','))
  end
  for key, family in pairs(families) do
    if family.stored then call('HSETNX', key, F.parked, 0) end
  end
  for base in pairs(bases) do
    at(base)
    trim_events(call('HGET', P .. K.meta, F.max_events))
    mark_ready()
    mark_due()
  end
end
