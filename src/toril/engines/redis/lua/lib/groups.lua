-- Groups. A job of one waits parked beside the line until it is let in: onto a seat of its group, and into `wait` or
-- `prioritized`, where BullMQ's workers find it too. The seat is its own until it ends. Members of the sorted sets begin
-- with the group's name and a byte that no name has, so that a group is a range of them.
local groups = {known = {}, touched = {}, is_touched = {}, let_in_some = false, news = false, sent_off = 0}
local IN_LINE, STARTED = '\1', '\2'

function groups.note(level, by_hand, declared)
  groups.level, groups.limits = tonumber(level or nil) or 0, by_hand or declared or ',,,,'
end

-- Whether the queue has any.
function groups.used()
  if not groups.level then
    groups.note(unpack(call('HMGET', P .. K.toril, F.grouped, F.groups_set, F.groups_declared)))
  end
  return groups.level > 0
end

function groups.use()
  if not groups.used() then call('HSET', P .. K.toril, F.grouped, 1) end
  groups.level = math.max(groups.level, 1)
end

function groups.wrong()
  return groups.used() and (wrong('zset', K.parked, K.seats, K.put_off, K.ring, K.till) or wrong('hash', K.group_starts, K.group_own))
end

local function numbers_of(text)
  local limit, max, ms, waiting, weight = text:match('^(%d*),(%d*),(%d*),(%d*),(%d*)')
  return tonumber(limit), tonumber(max), tonumber(ms), tonumber(waiting), tonumber(weight)
end

-- What holds for a group: its own limits, and where it has none the queue's.
function groups.of(name)
  local g = groups.used() ~= nil and groups.known[name]
  if g then return g end
  local own = groups.level == 2 and call('HGET', P .. K.group_own, name) or ',,,,'
  local limit, max, ms, waiting, weight = numbers_of(own)
  local limit_all, max_all, ms_all, waiting_all, weight_all = numbers_of(groups.limits)
  if not max then max, ms = max_all, ms_all end
  g = {
    name = name, paused = own:sub(-1) == 'p', limit = limit or limit_all, max = max, ms = ms,
    waiting = waiting or waiting_all, weight = weight or weight_all or 1, first = '[' .. name .. '\1', last = '(' .. name .. '\2',
  }
  groups.known[name] = g
  return g
end

-- How many it has on seats and parked: counted once a step, then kept in step with what is done.
function groups.count(g)
  if g.seats then return end
  g.seats = call('ZLEXCOUNT', P .. K.seats, g.first, '(' .. g.name .. '\3')
  g.parked = call('ZLEXCOUNT', P .. K.parked, g.first, g.last)
end

-- How many of it wait: parked, in the line, or put off.
function groups.waiting(g)
  groups.count(g)
  return g.parked + call('ZLEXCOUNT', P .. K.seats, g.first, g.last) + call('ZLEXCOUNT', P .. K.put_off, g.first, g.last)
end

-- How many more may be let in now. Where its rate is what keeps them, `till` is until when.
function groups.room(g)
  groups.count(g)
  if g.paused then return 0 end
  local room = g.limit and g.limit - g.seats or math.huge
  return g.max and room > 0 and math.min(room, groups.rate_left(g)) or room
end

-- The group has to be looked at before the step ends.
function groups.touch(name)
  if groups.is_touched[name] then return end
  groups.is_touched[name] = true
  groups.touched[#groups.touched + 1] = name
end
-- include grouprate
-- include letting
-- include seats
-- include leaving
