-- Who has a seat of a group, and for how long.
function groups.give_up_seat(id, name)
  call('ZREM', P .. K.put_off, name .. '\1' .. id)
  if call('ZREM', P .. K.seats, name .. IN_LINE .. id, name .. STARTED .. id) == 0 then return end
  local g = groups.of(name)
  if g.seats then g.seats = g.seats - 1 end
  groups.touch(name)
end

-- A job has to wait for a time. Where only one of its group runs at once it keeps its seat, or a younger one would go first.
function groups.put_off(id, name)
  if groups.of(name).limit ~= 1 then groups.give_up_seat(id, name) end
  call('ZADD', P .. K.put_off, 0, name .. '\1' .. id)
end

-- Its time has come.
function groups.fall_due(id, name, order, priority)
  groups.give_up_seat(id, name)
  groups.come(id, name, order, priority)
end

-- It has stalled, and keeps its seat until it has run again; unless its group is paused: then it is parked.
function groups.take_back(id, name, order, priority)
  if not groups.of(name).paused then return false end
  groups.give_up_seat(id, name)
  groups.park(id, name, order, priority, 's')
  return true
end

-- Whether one that is not in the line by our doing may start: on the seat that it still has, or on a free one.
local function sit_down(g, id)
  if call('ZSCORE', P .. K.seats, g.name .. STARTED .. id) then
    if not g.max or groups.rate_left(g) > 0 then return true end
    groups.give_up_seat(id, g.name)
    return false
  end
  if groups.room(g) < 1 then return false end
  g.seats = g.seats + 1
  return true
end

-- A job that starts, on its seat. False: it has none, since who put it into the line knew nothing of groups, and there is
-- no room. It is parked then.
function groups.start(id, name, order, priority, suspect)
  local g = groups.of(name)
  if call('ZREM', P .. K.seats, name .. IN_LINE .. id) == 0 then
    if not sit_down(g, id) then
      groups.park(id, name, order, priority, suspect == 1 and 's')
      groups.sent_off = groups.sent_off + 1
      return false
    end
    if g.left then g.left = g.left - 1 end
    call('ZREM', P .. K.put_off, name .. '\1' .. id)  -- others may have had it run before its time
  end
  call('ZADD', P .. K.seats, 0, name .. STARTED .. id)
  if g.max then groups.count_start(g) end
  return true
end
