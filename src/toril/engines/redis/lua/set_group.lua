-- Set what holds for one group, and say how it stands.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; the queue's name, the group; `1` if its limits are to be set, the limits; `p`, `r` or nothing
-- Returns see `groups.row`
-- Events  none
-- uses calls queue groups places
local name = ARGV[5]
local before = calls.recall()
if before and before.err then return before end
if before or (ARGV[6] == '' and ARGV[8] == '') then return groups.row(name) end
groups.start_using()
local mistake = groups.wrong() or context.wrong('list', K.wait)
  or context.wrong('zset', K.prioritized, K.suspects, K.marker, K.deadlines)
if mistake then return mistake end

queue.register(ARGV[4])
local own = call('HGET', P .. K.group_own, name) or ',,,,'
local limits, paused = own:match('^([%d,]*)(p?)$')
if ARGV[6] ~= '' then limits = ARGV[7] end
if ARGV[8] ~= '' then paused = ARGV[8] == 'p' and 'p' or '' end
if limits .. paused == ',,,,' then
  call('HDEL', P .. K.group_own, name)
else
  call('HSET', P .. K.group_own, name, limits .. paused)
  call('HSET', P .. K.toril, F.grouped, 2)
  groups.level = 2
end
groups.known[name] = nil

-- Those of a paused group that were admitted and have not started go back to where they were. A job of BullMQ's may be in
-- the hands of a worker of its own, which has its lock.
local g = groups.get(name)
local admitted = g.paused and call('ZRANGEBYLEX', P .. K.seats, g.first, '(' .. name .. '\3', 'LIMIT', 0, 1000) or {}
for i = 1, #admitted do
  local id = admitted[i]:sub(#name + 2)
  local suspect = call('ZSCORE', P .. K.suspects, id)
  local f = call('HMGET', P .. id, F.order, F.priority)
  if call('LREM', P .. K.wait, -1, id) + call('ZREM', P .. K.prioritized, id) > 0 then
    call('ZREM', P .. K.suspects, id)
    groups.give_up_seat(id, name)
    groups.park(id, name, f[1], f[2], suspect and 's')
  end
end
groups.touch(name)
calls.remember({})
places.mark_ready()
return groups.row(name)
