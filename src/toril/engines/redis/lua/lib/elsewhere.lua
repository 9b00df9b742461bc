-- include events
-- include turns
-- From here on the other parts speak of the queue with this base.
local function at(base)
  if base == P then return end
  groups.flush()
  P, EVENTS, tops, groups.level, groups.known = base, base .. K.events, {}, nil, {}
end
