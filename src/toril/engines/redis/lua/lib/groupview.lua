-- include turns
-- A group as readers see it: name, how many wait, how many have started, its own limits, the queue's, `p` if it is paused,
-- until when its rate is used up.
local function group_row(name)
  groups.used()
  groups.known[name] = nil
  local own = call('HGET', P .. K.group_own, name) or ',,,,'
  groups.level = math.max(groups.level, 2)
  local g = groups.of(name)
  local started, put_off = call('ZLEXCOUNT', P .. K.seats, '[' .. name .. '\2', '(' .. name .. '\3'), 0
  for _, member in ipairs(call('ZRANGEBYLEX', P .. K.put_off, g.first, g.last, 'LIMIT', 0, 1000)) do
    if call('ZSCORE', P .. K.seats, name .. '\2' .. member:sub(#name + 2)) then put_off = put_off + 1 end
  end
  local till = g.max and groups.rate_left(g) < 1 and g.till or false
  return {name, groups.waiting(g), started - put_off, own, groups.limits, g.paused and 1 or 0, till}
end
