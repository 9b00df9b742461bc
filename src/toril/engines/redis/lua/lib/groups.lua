-- Groups: their limits and rates, and which of their jobs are admitted to the line, by turns.
-- needs line
-- A job of a group waits parked beside the line until it is admitted: to a seat of its group, and into `wait` or
-- `prioritized`, where BullMQ's workers find it too. The seat is its own until it ends. Members of the sorted sets begin
-- with the group's name and a byte that no name has, so that a group is a range of them.
local groups = {
  settings = false, level = false, limits = ',,,,', known = {}, touched = {}, is_touched = {},
  admitted_some = false, changed = false, turned_away = 0,
  IN_LINE = '\1', STARTED = '\2',
}
local LIMITS = '^(%d*),(%d*),(%d*),(%d*),(%d*)'  -- how many at once, the rate's max and ms, how many may wait, weight

-- Whether the queue has any. `settings` are what is stored for all groups, where a script has read it already: 1 where jobs
-- have groups, 2 where a group has limits of its own; limits by hand; limits as declared.
function groups.used()
  if not groups.level then
    local found = groups.settings or call('HMGET', P .. K.toril, F.grouped, F.groups_set, F.groups_declared)
    groups.level, groups.limits = tonumber(found[1] or nil) or 0, found[2] or found[3] or ',,,,'
  end
  return groups.level > 0
end

function groups.start_using()
  if not groups.used() then call('HSET', P .. K.toril, F.grouped, 1) end
  groups.level = math.max(groups.level, 1)
end

function groups.wrong()
  return groups.used() and (context.wrong('zset', K.parked, K.seats, K.put_off, K.ring, K.till)
    or context.wrong('hash', K.group_starts, K.group_own))
end

-- What holds for a group: its own limits, and where it has none the queue's.
function groups.get(name)
  local g = groups.used() ~= nil and groups.known[name]
  if g then return g end
  local own = groups.level == 2 and call('HGET', P .. K.group_own, name) or ',,,,'
  local limit, max, ms, waiting, weight = own:match(LIMITS)
  local limit_all, max_all, ms_all, waiting_all, weight_all = groups.limits:match(LIMITS)
  if not tonumber(max) then max, ms = max_all, ms_all end
  g = {
    name = name, paused = own:sub(-1) == 'p', limit = tonumber(limit) or tonumber(limit_all), max = tonumber(max),
    ms = tonumber(ms), waiting = tonumber(waiting) or tonumber(waiting_all),
    weight = tonumber(weight) or tonumber(weight_all) or 1, first = '[' .. name .. '\1', last = '(' .. name .. '\2',
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

-- How many of it wait: parked, in the line, or delayed.
function groups.waiting(g)
  groups.count(g)
  return g.parked + call('ZLEXCOUNT', P .. K.seats, g.first, g.last) + call('ZLEXCOUNT', P .. K.put_off, g.first, g.last)
end

-- How many more may be admitted now. Where its rate is what keeps them, `till` is until when.
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

-- The starts within a group's window: times and counts. What is admitted may start at any moment, and counts as if it had.
function groups.starts(g)
  if g.starts then return g.starts end
  local text, kept = call('HGET', P .. K.group_starts, g.name), {}
  local all = text and cmsgpack.unpack(text) or {}
  for i = 1, #all, 2 do
    if all[i] > now - g.ms then kept[#kept + 1], kept[#kept + 2] = all[i], all[i + 1] end
  end
  g.starts = kept
  return kept
end

-- How many more its rate lets start.
function groups.rate_left(g)
  if not g.left then
    local starts, count = groups.starts(g), 0
    for i = 2, #starts, 2 do count = count + starts[i] end
    g.left = g.max - count - call('ZLEXCOUNT', P .. K.seats, g.first, g.last)
  end
  if g.left < 1 then g.till = g.starts[1] and g.starts[1] + g.ms end
  return math.max(0, g.left)
end

-- Large limits are counted in a hundredth of the window, rounded up, so that the limit is never exceeded.
function groups.count_start(g)
  local starts, slot = groups.starts(g), now
  if g.max > N.exact then
    local width = math.max(1, math.floor(g.ms / 100))
    slot = math.ceil(now / width) * width
  end
  local n = #starts
  if starts[n - 1] == slot then starts[n] = starts[n] + 1 else starts[n + 1], starts[n + 2] = slot, 1 end
  g.counted = true
  groups.touch(g.name)
end

-- Forget the starts of groups whose window is over, some a round. How many.
function groups.forget_starts()
  local found, old = call('HSCAN', P .. K.group_starts, call('HGET', P .. K.toril, F.scanned) or '0', 'COUNT', N.passes), {}
  for i = 1, #found[2], 2 do
    local starts, ms = cmsgpack.unpack(found[2][i + 1]), groups.get(found[2][i]).ms
    if not ms or (starts[#starts - 1] or 0) <= now - ms then old[#old + 1] = found[2][i] end
  end
  if #old > 0 then call('HDEL', P .. K.group_starts, unpack(old)) end
  call('HSET', P .. K.toril, F.scanned, found[1])
  return #old
end

-- How a job stands among the parked ones of its group; `kind` is w, or s for one that has stalled and must run alone.
function groups.member(name, order, priority, kind, id)
  return string.format('%s\1%07d%017.0f%s%s', name, context.number(priority, N.lowest_priority) or 0, context.number(order) or 0, kind, id)
end

-- A place behind all of its group, or before them.
function groups.next_order(first)
  groups.start_using()
  local number = call('HINCRBY', P .. K.toril, F.orders, 1)
  return string.format('%.0f', first and N.orders - number or N.orders + number)
end

-- Parked in the order of priority, and then of coming.
function groups.park(id, name, order, priority, kind)
  local g = groups.get(name)
  call('ZADD', P .. K.parked, 0, groups.member(name, order, priority, kind or 'w', id))
  if g.seats then g.parked = g.parked + 1 end
  groups.touch(name)
end

-- The first so many of a group go into the line.
function groups.admit_next(g, count)
  local members = call('ZRANGEBYLEX', P .. K.parked, g.first, g.last, 'LIMIT', 0, count)
  if #members > 0 then call('ZREM', P .. K.parked, unpack(members)) end
  for i = 1, #members do
    local rest = members[i]:sub(#g.name + 2)
    local id = rest:sub(26)
    if rest:sub(25, 25) == 's' then
      call('ZADD', P .. K.seats, 0, g.name .. groups.STARTED .. id)
      call('RPUSH', P .. K.wait, id)
      call('ZADD', P .. K.suspects, call('HINCRBY', P .. K.toril, F.stood, 1), id)
    else
      call('ZADD', P .. K.seats, 0, g.name .. groups.IN_LINE .. id)
      line.push(id, tonumber(rest:sub(1, 7)))
    end
  end
  g.parked, g.seats, g.left = g.parked - #members, g.seats + #members, g.left and g.left - #members
  groups.admitted_some = true
end

-- A job that could start now comes, or comes back: into the line if it need not wait, else parked. In which state that is.
function groups.admit(id, name, order, priority)
  local g = groups.get(name)
  if groups.room(g) > 0 and g.parked == 0 and g.seats < g.weight then
    call('ZADD', P .. K.seats, 0, name .. groups.IN_LINE .. id)
    g.seats, g.left, groups.admitted_some = g.seats + 1, g.left and g.left - 1, true
    return line.push(id, priority)
  end
  groups.park(id, name, order, priority)
  return 'waiting'
end

-- Who has a seat of a group, and for how long.
function groups.give_up_seat(id, name)
  call('ZREM', P .. K.put_off, name .. '\1' .. id)
  if call('ZREM', P .. K.seats, name .. groups.IN_LINE .. id, name .. groups.STARTED .. id) == 0 then return end
  local g = groups.get(name)
  if g.seats then g.seats = g.seats - 1 end
  groups.touch(name)
end

-- A job has to wait for a time. Where only one of its group runs at once it keeps its seat, or a younger one would go first.
function groups.delay(id, name)
  if groups.get(name).limit ~= 1 then groups.give_up_seat(id, name) end
  call('ZADD', P .. K.put_off, 0, name .. '\1' .. id)
end

-- Its time has come.
function groups.due(id, name, order, priority)
  groups.give_up_seat(id, name)
  groups.admit(id, name, order, priority)
end

-- It has stalled, and keeps its seat until it has run again; unless its group is paused: then it is parked.
function groups.recover(id, name, order, priority)
  if not groups.get(name).paused then return false end
  groups.give_up_seat(id, name)
  groups.park(id, name, order, priority, 's')
  return true
end

-- Whether one that is not in the line by our doing may start: on the seat that it still has, or on a free one.
function groups.can_start(g, id)
  if call('ZSCORE', P .. K.seats, g.name .. groups.STARTED .. id) then
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
  local g = groups.get(name)
  if call('ZREM', P .. K.seats, name .. groups.IN_LINE .. id) == 0 then
    if not groups.can_start(g, id) then
      groups.park(id, name, order, priority, suspect == 1 and 's')
      groups.turned_away = groups.turned_away + 1
      return false
    end
    if g.left then g.left = g.left - 1 end
    call('ZREM', P .. K.put_off, name .. '\1' .. id)  -- others may have had it run before its time
  end
  call('ZADD', P .. K.seats, 0, name .. groups.STARTED .. id)
  if g.max then groups.count_start(g) end
  return true
end

-- The job of a member of `parked`.
function groups.job_of(member)
  return member:match('^[^\1]*\1' .. ('%d'):rep(24) .. '[ws](.*)$')
end

-- Its group, and how it would stand there if it were parked: as one that has stalled, or as others.
function groups.parked_members(id)
  local f = call('HMGET', P .. id, F.group, F.order, F.priority)
  if f[1] then return f[1], groups.member(f[1], f[2], f[3], 'w', id), groups.member(f[1], f[2], f[3], 's', id) end
end

function groups.is_parked(id)
  local name, plain, suspect = groups.parked_members(id)
  return name and (call('ZSCORE', P .. K.parked, plain) or call('ZSCORE', P .. K.parked, suspect))
end

-- True: it was parked, and stands nowhere else.
function groups.leave(id)
  local name, plain, suspect = groups.parked_members(id)
  if not name then return false end
  local g = groups.get(name)
  if call('ZREM', P .. K.parked, plain, suspect) > 0 then
    if g.seats then g.parked = g.parked - 1 end
    return true
  end
  groups.give_up_seat(id, name)
  return false
end

-- As many of a group as its weight says stand in the line, or run, whatever the others do; so a group that had nothing
-- there comes next in line. More of one start only where a claim finds nothing else: by turns, which the ring keeps.
function groups.wait_for_turn(g, room)
  if g.parked == 0 then return end
  if room > 0 then
    call('ZADD', P .. K.ring, 'NX', call('HINCRBY', P .. K.toril, F.turns, 1), g.name)
    groups.changed = true
  elseif g.max and not g.paused and g.left and g.left < 1 and g.till then
    call('ZADD', P .. K.till, g.till, g.name)
    groups.changed = true
  end
end

-- Admit as many as a group may have in the line.
function groups.refill(name)
  local g = groups.get(name)
  groups.count(g)
  if g.parked == 0 then return end
  local room = groups.room(g)
  local size = math.min(room, g.weight - g.seats, g.parked)
  if size > 0 then
    groups.admit_next(g, size)
    room = groups.room(g)
  end
  groups.wait_for_turn(g, room)
end

-- What became of the groups in this step. To be called at its end.
function groups.flush()
  local touched = groups.touched
  groups.touched, groups.is_touched = {}, {}
  for i = 1, #touched do
    groups.refill(touched[i])
    local g = groups.get(touched[i])
    if g.counted then call('HSET', P .. K.group_starts, g.name, cmsgpack.pack(g.starts)) end
    g.counted = false
  end
end

function groups.any_parked() return groups.used() and call('ZCARD', P .. K.parked) > 0 end

-- Whether a claim could admit more: by turns, or as the rate of a group lets more start.
function groups.can_admit()
  return groups.used() and (call('ZCARD', P .. K.ring) > 0 or call('ZCOUNT', P .. K.till, '-inf', now) > 0)
end

-- When the rate of the next one lets more start.
function groups.next_time()
  local first = groups.used() and call('ZRANGE', P .. K.till, 0, 0, 'WITHSCORES') or {}
  return first[2] and math.max(now, tonumber(first[2]))
end

-- Groups whose rate lets more start, a bounded number.
function groups.admit_due()
  local due = call('ZRANGEBYSCORE', P .. K.till, '-inf', now, 'LIMIT', 0, N.passes)
  if #due == 0 then return end
  groups.flush()
  groups.known = {}  -- others have parked jobs of these
  call('ZREM', P .. K.till, unpack(due))
  for i = 1, #due do groups.refill(due[i]) end
end

-- Admit up to `want` by turns. How many that were.
function groups.admit_by_turns(want)
  local given, looked = 0, 0
  while given < want and looked < N.passes do
    local name = call('ZPOPMIN', P .. K.ring)[1]
    if not name then break end
    local g = groups.get(name)
    local room, before = groups.room(g), g.parked
    local others = g.parked > g.weight and call('ZCARD', P .. K.ring) > 0
    local size = math.min(room, others and g.weight or want, want - given, g.parked)
    if size > 0 then groups.admit_next(g, size) else looked = looked + 1 end
    given = given + before - g.parked
    groups.wait_for_turn(g, size > 0 and groups.room(g) or room)
  end
  return given
end

-- A claim found nothing more in the line: admit what those that it has ended on the way made room for, else by turns.
function groups.admit_more(want)
  groups.admitted_some = false
  groups.flush()
  return groups.admitted_some and 1 or groups.admit_by_turns(want)
end

-- A group as readers see it: name, how many wait, how many have started, its own limits, the queue's, `p` if it is paused,
-- until when its rate is used up.
function groups.row(name)
  groups.used()
  groups.known[name] = nil
  local own = call('HGET', P .. K.group_own, name) or ',,,,'
  groups.level = math.max(groups.level, 2)
  local g = groups.get(name)
  local started, put_off = call('ZLEXCOUNT', P .. K.seats, '[' .. name .. '\2', '(' .. name .. '\3'), 0
  for _, member in ipairs(call('ZRANGEBYLEX', P .. K.put_off, g.first, g.last, 'LIMIT', 0, 1000)) do
    if call('ZSCORE', P .. K.seats, name .. '\2' .. member:sub(#name + 2)) then put_off = put_off + 1 end
  end
  local till = g.max and groups.rate_left(g) < 1 and g.till or false
  return {name, groups.waiting(g), started - put_off, own, groups.limits, g.paused and 1 or 0, till}
end

-- The next group after `name` in one of the sets.
function groups.after(key, name)
  local member = call('ZRANGEBYLEX', key, name == '' and '-' or '(' .. name .. '\3', '+', 'LIMIT', 0, 1)[1]
  return member and member:match('^([^\1\2]*)')
end
