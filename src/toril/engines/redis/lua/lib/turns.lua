-- include places
-- Whose turn it is. As many of a group as its weight says stand in the line, or run, whatever the others do; so a group
-- that had nothing there comes next in line. More of one start only where a claim finds nothing else: by the ring.

local function wait_for_turn(g, room)
  if g.parked == 0 then return end
  if room > 0 then
    call('ZADD', P .. K.ring, 'NX', call('HINCRBY', P .. K.toril, F.turns, 1), g.name)
    groups.news = true
  elseif g.max and not g.paused and g.left and g.left < 1 and g.till then
    call('ZADD', P .. K.till, g.till, g.name)
    groups.news = true
  end
end

local function refill(name)
  local g = groups.of(name)
  groups.count(g)
  if g.parked == 0 then return end
  local room = groups.room(g)
  local size = math.min(room, g.weight - g.seats, g.parked)
  if size > 0 then
    groups.let_in(g, size)
    room = groups.room(g)
  end
  wait_for_turn(g, room)
end

-- What became of the groups in this step. To be called at its end.
function groups.flush()
  local touched = groups.touched
  groups.touched, groups.is_touched = {}, {}
  for i = 1, #touched do
    refill(touched[i])
    groups.save_starts(groups.of(touched[i]))
  end
end
function groups.any_parked() return groups.used() and call('ZCARD', P .. K.parked) > 0 end
-- How many groups have jobs that could start.
function groups.turns() return groups.used() and call('ZCARD', P .. K.ring) or 0 end

-- When the rate of the next one lets more start.
function groups.next_till()
  local first = groups.used() and call('ZRANGE', P .. K.till, 0, 0, 'WITHSCORES') or {}
  return first[2] and math.max(now, tonumber(first[2]))
end

-- Groups whose rate lets more start, a bounded number.
function groups.look_at_due()
  local due = call('ZRANGEBYSCORE', P .. K.till, '-inf', now, 'LIMIT', 0, N.passes)
  if #due == 0 then return end
  groups.flush()
  groups.known = {}  -- others have parked jobs of these
  call('ZREM', P .. K.till, unpack(due))
  for i = 1, #due do refill(due[i]) end
end

-- Let in up to `want` by turns. How many that were.
local function by_turns(want)
  local given, looked = 0, 0
  while given < want and looked < N.passes do
    local name = call('ZPOPMIN', P .. K.ring)[1]
    if not name then break end
    local g = groups.of(name)
    local room, before = groups.room(g), g.parked
    local others = g.parked > g.weight and call('ZCARD', P .. K.ring) > 0
    local size = math.min(room, others and g.weight or want, want - given, g.parked)
    if size > 0 then groups.let_in(g, size) else looked = looked + 1 end
    given = given + before - g.parked
    wait_for_turn(g, size > 0 and groups.room(g) or room)
  end
  return given
end

-- A claim found nothing more in the line: let in what those that it has ended on the way made room for, else by turns.
function groups.more(want)
  groups.let_in_some = false
  groups.flush()
  return groups.let_in_some and 1 or by_turns(want)
end
