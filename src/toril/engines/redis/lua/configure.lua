-- Change a queue's settings for every process at once.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; the queue's name; for each setting its kind, and three values
-- Returns paused, concurrency, rate's max, ms and window, how many may wait, until when nothing starts, limits of groups
-- Events  paused, resumed
-- uses calls events queue groups group_maintenance places
local function settings()
  local meta = call('HMGET', P .. K.meta, F.is_paused, F.concurrency, F.rate_max, F.rate_ms)
  local own = call('HMGET', P .. K.toril, F.window, F.max_waiting, F.held_till, F.groups_set, F.groups_declared)
  return {meta[1], meta[2], meta[3], meta[4], own[1], own[2], (tonumber(own[3] or nil) or 0) > now and own[3],
    own[4] or own[5]}
end

local before = calls.recall()
if before and before.err then return before end
if before or #ARGV == 4 then return settings() end
local mistake = context.wrong('list', K.wait, K.active)
  or context.wrong('zset', K.marker, K.prioritized, K.delayed, K.suspects) or context.wrong('stream', K.events)
  or context.wrong('hash', K.meta, K.toril)
if mistake then return mistake end

local function set(key, field, value)
  if value == '' then call('HDEL', key, field) else call('HSET', key, field, value) end
end

local SET = {}
function SET.pause()
  if call('HSET', P .. K.meta, F.is_paused, 1) == 1 then events.add('paused') end
  call('DEL', P .. K.marker)
end
-- What versions before 6 put aside while the queue was paused goes back to the front.
function SET.resume()
  if call('HDEL', P .. K.meta, F.is_paused) == 1 then events.add('resumed') end
  while call('LMOVE', P .. K.paused, P .. K.wait, 'LEFT', 'RIGHT') do end
end
function SET.concurrency(limit) set(P .. K.meta, F.concurrency, limit) end
function SET.max_waiting(limit) set(P .. K.toril, F.max_waiting, limit) end
function SET.rate(max, ms, window)
  set(P .. K.meta, F.rate_max, max)
  set(P .. K.meta, F.rate_ms, ms)
  set(P .. K.toril, F.window, window == 'sliding' and window or '')
end

-- BullMQ's workers that have a rate look at their counter.
function SET.hold(ms)
  set(P .. K.toril, F.held_till, ms ~= '' and now + tonumber(ms) or '')
  if ms == '' then call('DEL', P .. K.limiter) end
  if ms ~= '' and slack == 0 then call('SET', P .. K.limiter, '9007199254740991', 'PX', ms) end
end

-- What a limit kept back may be admitted now: some groups are looked at here, the others in the rounds of `recover`.
function SET.groups(limits, _, _, field)
  field = field or F.groups_set
  if (call('HGET', P .. K.toril, field) or '') == limits then return end
  set(P .. K.toril, field, limits)
  call('HDEL', P .. K.toril, F.tended)
  groups.level, groups.known = nil, {}
  group_maintenance.check_seats(N.seats_checked)
end
function SET.declared(limits, _, _) SET.groups(limits, nil, nil, F.groups_declared) end

queue.register(ARGV[4])
for i = 5, #ARGV, 4 do SET[ARGV[i]](ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]) end
calls.remember({})
places.mark_ready()
places.mark_due()
return settings()
