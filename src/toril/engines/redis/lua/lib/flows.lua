-- Jobs that wait for other jobs, in any queues: added, waited for, rolled back.
-- needs events queue jobs groups places parents new_jobs steps signals
-- First what becomes of each node is decided, then it is written. `with_children` are the jobs that have or get children, by
-- their keys; `left_out` the nodes that are not added; `fresh` how many new jobs a queue and its groups get, by its base.
local flows = {nodes = {}, with_children = {}, left_out = {}, fresh = {}}
local UNSTARTED = {waiting = true, prioritized = true, delayed = true}

-- {queue, id, name, data, options, delay, due, priority, lifo, expires, metadata, `1` if it waits, its parent's queue and
-- id, flag of the policy, its group}
function flows.node(n)
  local base = PREFIX .. n[1] .. ':'
  local node = {n = n, base = base, key = base .. n[2], name = n[1] .. ':' .. n[2], waits = n[12] == '1'}
  if n[13] ~= '' then
    node.parent, node.parent_base = PREFIX .. n[13] .. ':' .. n[14], PREFIX .. n[13] .. ':'
    local flag = n[15] ~= '' and ',"' .. n[15] .. '":true' or ''
    local id, base_of = cjson.encode(n[14]), cjson.encode(PREFIX .. n[13])
    node.link = '{"id":' .. id .. ',"queueKey":' .. base_of .. flag .. '}'
    node.opts = '"parent":{"id":' .. id .. ',"queue":' .. base_of .. '}' .. flag
  end
  return node
end

-- Whether a parent has this child.
function flows.is_known(parent, child)
  return call('SISMEMBER', parent .. K.dependencies, child) == 1 or call('HEXISTS', parent .. K.processed, child) == 1
    or call('HEXISTS', parent .. K.child_failures, child) == 1 or call('ZSCORE', parent .. K.unsuccessful, child)
end

-- Whether a job can have children: it is among those that are added, or waits for some, or runs.
function flows.wrong_parent(node)
  if flows.with_children[node.parent] then return end
  if call('EXISTS', node.parent) == 0 then return {'no_parent', node.name, node.n[13] .. ':' .. node.n[14]} end
  places.switch_queue(node.parent_base)
  local state = places.state(node.n[14])
  if state ~= 'waiting_children' and state ~= 'active' then
    return {'parent_state', node.n[13] .. ':' .. node.n[14], state or 'waiting'}
  end
  flows.with_children[node.parent] = {stored = true, base = node.parent_base, id = node.n[14]}
end

-- An existing job becomes a child, unless it has another parent or has children.
function flows.wrong_child(node, state)
  local other, parent = call('HGET', node.key, F.parent), node.n[13] .. ':' .. node.n[14]
  local link = other and parents.link(other)
  if link and link.key ~= node.parent and call('EXISTS', link.key) == 1
    and not call('ZSCORE', link.base .. K.completed, link.id) and not call('ZSCORE', link.base .. K.failed, link.id) then
    return {'taken', node.name, link.key:sub(#PREFIX + 1)}
  end
  local has = call('EXISTS', node.key .. K.dependencies, node.key .. K.processed, node.key .. K.child_failures)
  if node.waits or has > 0 or flows.with_children[node.key] then return {'has_children', node.name, parent} end
  if state == 'failed' then return {'has_failed', node.name, parent} end
end

-- Leave a node as it is, for this reason.
function flows.keep(node, how)
  node.how = how
  places.switch_queue(node.base)
  -- A job that is gone has ended; one that exists but is in no place is about to be settled.
  node.state = places.state(node.n[2]) or (call('EXISTS', node.key) == 1 and 'active' or 'completed')
  if how == 'out' then flows.left_out[node.key] = true end
end

-- What becomes of a node: `new`, `resumed`, `known` to its parent, `kept` and made a child, left `out`. A refusal, if it cannot be.
function flows.decide(node)
  local there = call('EXISTS', node.key) == 1
  if node.parent and flows.left_out[node.parent] then return flows.keep(node, 'out') end
  local mistake = node.parent and flows.wrong_parent(node)
  if mistake then return mistake end
  local family = node.parent and flows.with_children[node.parent]
  if family and family.stored and flows.is_known(node.parent, node.key) then
    if node.waits and there then flows.with_children[node.key] = {stored = true, base = node.base, id = node.n[2]} end
    return flows.keep(node, node.waits and not there and 'out' or 'known')
  elseif not there then
    node.how = 'new'
    if node.waits then
      flows.with_children[node.key] = {base = node.base, id = node.n[2]}
    else
      local fresh, group = flows.fresh[node.base] or {count = 0, of_groups = {}}, node.n[16]
      flows.fresh[node.base], fresh.count = fresh, fresh.count + 1
      if group ~= '' then fresh.of_groups[group] = (fresh.of_groups[group] or 0) + 1 end
    end
  elseif not node.parent then  -- a flow that exists already, unless it is incomplete
    local building = node.waits and call('SISMEMBER', node.key .. K.dependencies, node.key .. K.hold) == 1
    if building then flows.with_children[node.key] = {stored = true, base = node.base, id = node.n[2]} end
    flows.keep(node, building and 'resumed' or 'out')
  else
    flows.keep(node, 'kept')
    return flows.wrong_child(node, node.state)
  end
end

-- A refusal if this queue or one of its groups would exceed its limit of waiting jobs.
function flows.overfull(name, fresh)
  local most = tonumber(call('HGET', P .. K.toril, F.max_waiting) or nil)
  if most then
    local held = call('LLEN', P .. K.wait) + call('LLEN', P .. K.paused) + call('ZCARD', P .. K.prioritized)
      + call('ZCARD', P .. K.delayed) + call('ZCARD', P .. K.parked) - steps.delayed_rests()
    if held + fresh.count > most then return {'full', name, most, held, fresh.count} end
  end
  for group, count in pairs(fresh.of_groups) do
    local g = groups.get(group)
    local held = g.waiting and groups.waiting(g)
    if held and held + count > g.waiting then return {'overfull', name, group, g.waiting, held, count} end
  end
end

-- All of them, beside those that are known; the first refusal. Whatever they are written to is of the right type.
function flows.decide_all(list, bounded, known)
  local seen = {}
  flows.nodes, flows.with_children, flows.left_out, flows.fresh = {}, known or {}, {}, {}
  for i = 1, #list do
    flows.nodes[i] = flows.node(list[i])
    local refusal = flows.decide(flows.nodes[i])
    if refusal then return refusal end
  end
  for i = 1, #flows.nodes do
    places.switch_queue(flows.nodes[i].base)
    if not seen[P] then
      local mistake = context.wrong('list', K.wait, K.active) or context.wrong('stream', K.events)
        or context.wrong('hash', K.meta, K.results)
        or context.wrong('zset', K.prioritized, K.delayed, K.marker, K.suspects, K.waiting_children, K.results_till)
        or context.wrong('string', K.pc, K.id)
      if mistake then return nil, mistake end
      local refusal = bounded and flows.fresh[P] and flows.overfull(flows.nodes[i].n[1], flows.fresh[P])
      if refusal then return refusal end
      seen[P] = true
    end
  end
end

-- A parent, as `new_jobs.store` stores others: a delay of its own begins when its children have ended.
function flows.store_parent(node)
  local n = node.n
  local delay = n[7] == '' and tonumber(n[6]) or math.max(0, tonumber(n[7]) - now)
  call('HSET', node.key, F.name, n[3], F.data, n[4], F.opts, n[5], F.added_at, NOW, F.delay, delay, F.priority, n[8], F.parked, 0)
  if n[10] ~= '' then
    call('HSET', node.key, F.expires, now + tonumber(n[10]))
    call('HSET', P .. K.toril, F.expiring, 1)
  end
  if n[11] ~= '' then call('HSET', node.key, F.metadata, n[11]) end
  if n[16] ~= '' then call('HSET', node.key, F.group, n[16], F.order, groups.next_order(n[9] == '1')) end
  call('ZADD', P .. K.waiting_children, NOW, n[2])
  events.add('added', 'jobId', n[2], 'name', n[3])
  events.add('waiting-children', 'jobId', n[2])
  return 'waiting_children'
end

function flows.options_with_parent(node, opts)
  return '{' .. node.opts .. (opts:match('^%s*{%s*}') and '' or ',') .. opts:match('^%s*{(.*)$')
end

-- A new job of a flow.
function flows.store_node(node)
  local n = node.n
  call('INCR', P .. K.id)
  queue.register(n[1])
  call('HDEL', P .. K.results, n[2])
  call('ZREM', P .. K.results_till, n[2])
  if node.parent then n[5] = flows.options_with_parent(node, n[5]) end
  if node.waits then
    node.state = flows.store_parent(node)
  else
    node.state = new_jobs.store(n[2], nil, n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10], n[11], nil, nil, nil, n[16])
  end
end

-- Write what was decided.
function flows.write()
  local bases, names = {}, {}
  for i = 1, #flows.nodes do
    local node = flows.nodes[i]
    places.switch_queue(node.base)
    if node.how == 'new' then
      flows.store_node(node)
    elseif node.how == 'kept' then  -- an existing job becomes a child
      local opts = call('HGET', node.key, F.opts) or '{}'
      if not opts:find('"parent"', 1, true) then call('HSET', node.key, F.opts, flows.options_with_parent(node, opts)) end
    end
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
  for key, family in pairs(flows.with_children) do
    if family.stored then call('HSETNX', key, F.parked, 0) end
  end
  for base in pairs(bases) do
    places.switch_queue(base)
    events.trim(call('HGET', P .. K.meta, F.max_events))
    places.mark_ready()
    places.mark_due()
  end
end

-- A running job gets these children as it comes to rest. Why it cannot.
function flows.adopt(id, text)
  local home = P
  local refusal, mistake = flows.decide_all(cjson.decode(text), false, {[P .. id] = {stored = true, base = P, id = id}})
  if mistake then refusal = {'damaged', '', mistake.err} end
  if not refusal then flows.write() end
  places.switch_queue(home)
  if refusal then return 'child ' .. refusal[2] .. ' cannot be added: ' .. refusal[1] .. ' ' .. refusal[3] end
end

-- A few parents per round, others in the next minute; and a few open children of each.
function flows.release_stuck_parents()
  local waiting, removed = call('ZCARD', P .. K.waiting_children), 0
  local first = waiting > 0 and math.floor(now / 60000) * N.parents_checked % waiting or 0
  local ids = waiting > 0 and call('ZRANGE', P .. K.waiting_children, first, first + N.parents_checked - 1) or {}
  for _, id in ipairs(ids) do
    local open, gone = call('SRANDMEMBER', P .. id .. K.dependencies, 20), {}
    for _, child in ipairs(open) do
      if child ~= P .. id .. K.hold and parents.is_gone(child) then gone[#gone + 1] = child end
    end
    if #gone == #open then
      if #gone > 0 then removed = removed + call('SREM', P .. id .. K.dependencies, unpack(gone)) end
      parents.release_if_done({base = P, id = id, key = P .. id})
    end
  end
  return removed
end

-- Remove jobs that have not started. A parent among them follows when its own children are gone.
function flows.remove_child(child, parent)
  local name, id = child:sub(#PREFIX + 1):match('^([^:]+):(.+)$')
  if not name then return 0 end
  places.switch_queue(PREFIX .. name .. ':')
  local state = places.state(id)
  if state == 'waiting_children' then call('ZADD', P .. K.building, now, id) end
  if not UNSTARTED[state] then return 0 end
  places.leave(id, state)
  signals.leave(id)
  jobs.delete(id)
  events.add('removed', 'jobId', id, 'prev', state == 'waiting' and 'wait' or state)
  return call('SREM', parent .. K.dependencies, child)
end

-- Flows of which the rest never came: what has not started of them is removed, and then those who waited for it.
function flows.roll_back(limit)
  local home, removed = P, 0
  for _, id in ipairs(call('ZRANGEBYSCORE', P .. K.building, '-inf', now, 'LIMIT', 0, 10)) do
    local key = home .. id
    local open = call('SRANDMEMBER', key .. K.dependencies, limit)
    for i = 1, #open do removed = removed + flows.remove_child(open[i], key) end
    places.switch_queue(home)
    if #open < limit then
      if places.state(id) == 'waiting_children' then
        places.leave(id, 'waiting_children')
        signals.leave(id)
        parents.child_ended(key, call('HGET', key, F.parent) or '', 'removed')
        jobs.delete(id)
        events.add('removed', 'jobId', id, 'prev', 'waiting-children')
      end
      call('ZREM', P .. K.building, id)
    end
  end
  return removed
end
