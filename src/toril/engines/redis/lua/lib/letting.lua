-- include parked
-- Where jobs of groups are while they do not run: parked in the order of their priority and of their coming, or let in.

-- A place behind all of its group, or before them.
function groups.order(first)
  groups.use()
  local number = call('HINCRBY', P .. K.toril, F.orders, 1)
  return string.format('%.0f', first and N.orders - number or N.orders + number)
end

function groups.park(id, name, order, priority, kind)
  local g = groups.of(name)
  call('ZADD', P .. K.parked, 0, parked_as(name, order, priority, kind or 'w', id))
  if g.seats then g.parked = g.parked + 1 end
  groups.touch(name)
end

-- Let in so many: `left` is what the rate still allows, where it is known.
local function seated(g, count)
  g.seats, groups.let_in_some = g.seats + count, true
  if g.left then g.left = g.left - count end
end

-- The first so many of a group go into the line.
function groups.let_in(g, count)
  local members = call('ZRANGEBYLEX', P .. K.parked, g.first, g.last, 'LIMIT', 0, count)
  if #members > 0 then call('ZREM', P .. K.parked, unpack(members)) end
  for i = 1, #members do
    local rest = members[i]:sub(#g.name + 2)
    local id = rest:sub(26)
    if rest:sub(25, 25) == 's' then
      call('ZADD', P .. K.seats, 0, g.name .. STARTED .. id)
      call('RPUSH', P .. K.wait, id)
      call('ZADD', P .. K.suspects, call('HINCRBY', P .. K.toril, F.stood, 1), id)
    else
      call('ZADD', P .. K.seats, 0, g.name .. IN_LINE .. id)
      stand(id, tonumber(rest:sub(1, 7)))
    end
  end
  g.parked = g.parked - #members
  seated(g, #members)
end

-- A job that could start now comes, or comes back: into the line if it need not wait, else parked. In which state that is.
function groups.come(id, name, order, priority)
  local g = groups.of(name)
  if groups.room(g) > 0 and g.parked == 0 and g.seats < g.weight then
    call('ZADD', P .. K.seats, 0, name .. IN_LINE .. id)
    seated(g, 1)
    return stand(id, priority)
  end
  groups.park(id, name, order, priority)
  return 'waiting'
end
