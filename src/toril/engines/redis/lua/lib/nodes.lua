-- include kinship
-- include storing
-- include states
-- include known
-- include marks
-- include guard
-- include elsewhere
-- Jobs of a flow, in any queues: first what becomes of each is decided, then it is written.
local nodes, families, left_out, fresh = {}, {}, {}, {}

-- {queue, id, name, data, options, delay, due, priority, lifo, expires, metadata, `1` if it waits, its parent's queue and
-- id, flag of the policy, its group}
local function node_of(n)
  local base = PREFIX .. n[1] .. ':'
  local node = {n = n, base = base, key = base .. n[2], name = n[1] .. ':' .. n[2], waits = n[12] == '1'}
  if n[13] ~= '' then
    node.parent, node.parent_base = PREFIX .. n[13] .. ':' .. n[14], PREFIX .. n[13] .. ':'
    local flag = n[15] ~= '' and ',"' .. n[15] .. '":true' or ''
    local id, queue = cjson.encode(n[14]), cjson.encode(PREFIX .. n[13])
    node.link = '{"id":' .. id .. ',"queueKey":' .. queue .. flag .. '}'
    node.opts = '"parent":{"id":' .. id .. ',"queue":' .. queue .. '}' .. flag
  end
  return node
end

local function is_known(parent, child)
  return call('SISMEMBER', parent .. K.dependencies, child) == 1 or call('HEXISTS', parent .. K.processed, child) == 1
    or call('HEXISTS', parent .. K.child_failures, child) == 1 or call('ZSCORE', parent .. K.unsuccessful, child)
end

-- Whether a job can have children: it is among those that are added, or waits for some, or runs.
local function wrong_parent(node)
  if families[node.parent] then return end
  if call('EXISTS', node.parent) == 0 then return {'no_parent', node.name, node.n[13] .. ':' .. node.n[14]} end
  at(node.parent_base)
  local state = state_of(node.n[14])
  if state ~= 'waiting_children' and state ~= 'active' then
    return {'parent_state', node.n[13] .. ':' .. node.n[14], state or 'waiting'}
  end
  families[node.parent] = {stored = true, base = node.parent_base, id = node.n[14]}
end

-- A job that is there already becomes a child, unless it is another's or has children.
local function wrong_child(node, state)
  local other, parent = call('HGET', node.key, F.parent), node.n[13] .. ':' .. node.n[14]
  local link = other and link_of(other)
  if link and link.key ~= node.parent and call('EXISTS', link.key) == 1
    and not call('ZSCORE', link.base .. K.completed, link.id) and not call('ZSCORE', link.base .. K.failed, link.id) then
    return {'taken', node.name, link.key:sub(#PREFIX + 1)}
  end
  local has = call('EXISTS', node.key .. K.dependencies, node.key .. K.processed, node.key .. K.child_failures)
  if node.waits or has > 0 or families[node.key] then return {'has_children', node.name, parent} end
  if state == 'failed' then return {'has_failed', node.name, parent} end
end

local function keep_as_it_is(node, how)
  node.how = how
  at(node.base)
  -- One that is gone has ended; one that is there and stands nowhere is about to be handed in.
  node.state = state_of(node.n[2]) or (call('EXISTS', node.key) == 1 and 'active' or 'completed')
  if how == 'out' then left_out[node.key] = true end
end
