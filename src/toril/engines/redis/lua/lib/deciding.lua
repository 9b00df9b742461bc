-- include nodes
-- New ones of a group; on the table of groups, since a script has no more room for locals.
function groups.count_fresh(base, name)
  groups.fresh[base] = groups.fresh[base] or {}
  groups.fresh[base][name] = (groups.fresh[base][name] or 0) + 1
end

-- What becomes of a node: `new`, `resumed`, `known` to its parent, `kept` and made a child, left `out`. A refusal, if it cannot be.
local function decide(node)
  local there = call('EXISTS', node.key) == 1
  if node.parent and left_out[node.parent] then return keep_as_it_is(node, 'out') end
  local mistake = node.parent and wrong_parent(node)
  if mistake then return mistake end
  local family = node.parent and families[node.parent]
  if family and family.stored and is_known(node.parent, node.key) then
    if node.waits and there then families[node.key] = {stored = true, base = node.base, id = node.n[2]} end
    return keep_as_it_is(node, node.waits and not there and 'out' or 'known')
  elseif not there then
    node.how = 'new'
    if node.waits then
      families[node.key] = {base = node.base, id = node.n[2]}
    else
      fresh[node.base] = (fresh[node.base] or 0) + 1
      if node.n[16] ~= '' then groups.count_fresh(node.base, node.n[16]) end
    end
  elseif not node.parent then  -- a flow that is there already, unless it was never whole
    local building = node.waits and call('SISMEMBER', node.key .. K.dependencies, node.key .. K.hold) == 1
    if building then families[node.key] = {stored = true, base = node.base, id = node.n[2]} end
    keep_as_it_is(node, building and 'resumed' or 'out')
  else
    keep_as_it_is(node, 'kept')
    return wrong_child(node, node.state)
  end
end

-- A group of this queue that would have more waiting than it may.
function groups.overfull(queue)
  for name, count in pairs(groups.fresh[P] or {}) do
    local g = groups.of(name)
    local held = g.waiting and groups.waiting(g)
    if held and held + count > g.waiting then return {'overfull', queue, name, g.waiting, held, count} end
  end
end

local function full(queue)
  local most, count = tonumber(call('HGET', P .. K.toril, F.max_waiting) or nil), fresh[P]
  if not most or not count then return end
  local held = call('LLEN', P .. K.wait) + call('LLEN', P .. K.paused) + call('ZCARD', P .. K.prioritized) + call('ZCARD', P .. K.delayed)
    + call('ZCARD', P .. K.parked)
  if held + count > most then return {'full', queue, most, held, count} end
end

-- All of them, beside those that are known; the first refusal. Whatever they are written to is of the right type.
local function decide_all(list, bounded, known)
  local seen = {}
  nodes, families, left_out, fresh, groups.fresh = {}, known or {}, {}, {}, {}
  for i = 1, #list do
    nodes[i] = node_of(list[i])
    local refusal = decide(nodes[i])
    if refusal then return refusal end
  end
  for i = 1, #nodes do
    at(nodes[i].base)
    local mistake = not seen[P] and (wrong('list', K.wait, K.active) or wrong('stream', K.events) or wrong('hash', K.meta, K.results)
      or wrong('zset', K.prioritized, K.delayed, K.marker, K.suspects, K.waiting_children, K.results_till) or wrong('string', K.pc, K.id))
    if mistake then return nil, mistake end
    local refusal = not seen[P] and bounded and (full(nodes[i].n[1]) or groups.overfull(nodes[i].n[1]))
    if refusal then return refusal end
    seen[P] = true
  end
end
