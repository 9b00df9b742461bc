-- include attaching
-- include burying
-- Parents that nobody else lets go on.

-- Whether nothing is left of a child: neither the job nor its dead letter.
local function is_gone(child)
  if call('EXISTS', child) == 1 then return false end
  local queue, id = child:sub(#PREFIX + 1):match('^([^:]+):(.+)$')
  return not queue or call('EXISTS', D .. queue .. '/' .. id:gsub('%%', '%%25'):gsub(':', '%%3A')) == 0
end

-- Some parents a round, others in the next minute; and of each a few open children.
local function heal()
  local waiting, healed = call('ZCARD', P .. K.waiting_children), 0
  local first = waiting > 0 and math.floor(now / 60000) * N.healed % waiting or 0
  local parents = waiting > 0 and call('ZRANGE', P .. K.waiting_children, first, first + N.healed - 1) or {}
  for _, id in ipairs(parents) do
    local open, gone = call('SRANDMEMBER', P .. id .. K.dependencies, 20), {}
    for _, child in ipairs(open) do
      if child ~= P .. id .. K.hold and is_gone(child) then gone[#gone + 1] = child end
    end
    if #gone == #open then
      if #gone > 0 then healed = healed + call('SREM', P .. id .. K.dependencies, unpack(gone)) end
      go_on({base = P, id = id, key = P .. id})
    end
  end
  return healed
end

local BEFORE = {waiting = true, prioritized = true, delayed = true}

-- Remove what has not started. A parent among them has its turn when its own children are gone.
local function take_back_child(child, parent)
  local queue, id = child:sub(#PREFIX + 1):match('^([^:]+):(.+)$')
  if not queue then return 0 end
  at(PREFIX .. queue .. ':')
  local state = state_of(id)
  if state == 'waiting_children' then call('ZADD', P .. K.building, now, id) end
  if not BEFORE[state] then return 0 end
  leave(id, state)
  forget(id)
  event('removed', 'jobId', id, 'prev', state == 'waiting' and 'wait' or state)
  return call('SREM', parent .. K.dependencies, child)
end

-- Flows of which the rest never came: what has not started of them is removed, and then those who waited for it.
local function roll_back(limit)
  local home, removed = P, 0
  for _, id in ipairs(call('ZRANGEBYSCORE', P .. K.building, '-inf', now, 'LIMIT', 0, 10)) do
    local key = home .. id
    local open = call('SRANDMEMBER', key .. K.dependencies, limit)
    for i = 1, #open do removed = removed + take_back_child(open[i], key) end
    at(home)
    if #open < limit then
      if state_of(id) == 'waiting_children' then
        leave(id, 'waiting_children')
        tell_parent(key, call('HGET', key, F.parent) or '', 'removed')
        forget(id)
        event('removed', 'jobId', id, 'prev', 'waiting-children')
      end
      call('ZREM', P .. K.building, id)
    end
  end
  return removed
end
