-- Change data, priority or delay of jobs whose state allows it, in order.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; for each update kind (data, priority, delay), id, value, `1` for the front
-- Returns ids done, none asked, {id, state} of those refused
-- Events  delayed
-- uses calls events line groups places steps job_control
local before = calls.recall()
if before then return before end
local mistake = context.wrong('list', K.wait) or context.wrong('zset', K.prioritized, K.delayed, K.marker, K.suspects)
  or context.wrong('stream', K.events) or context.wrong('hash', K.meta) or context.wrong('string', K.pc)
if mistake then return mistake end

local WAITS = {waiting = true, prioritized = true, delayed = true}
local UPDATES = {}

function UPDATES.data(id, _, data)
  call('HSET', P .. id, F.data, data)
  return true
end

function UPDATES.delay(id, state, delay)
  if state ~= 'delayed' or steps.rest_of(id) then return false end
  call('ZREM', P .. K.delayed, id)
  call('HSET', P .. id, F.delay, delay)
  line.delay(id, now + delay)
  events.add('delayed', 'jobId', id, 'delay', now + delay)
  return true
end

-- A suspect stays where it is claimed alone.
function UPDATES.priority(id, state, priority, front)
  if not WAITS[state] then return false end
  local parked = groups.used() and groups.is_parked(id)
  if parked then places.leave(id, state) end
  call('HSET', P .. id, F.priority, priority)
  if parked then return places.to_back(id, tonumber(priority)) or true end
  if state ~= 'delayed' and not call('ZSCORE', P .. K.suspects, id) then
    places.leave(id, state)
    if front == '1' then places.to_front(id, tonumber(priority)) else places.to_back(id, tonumber(priority)) end
  end
  return true
end

local done, asked, refused = {}, {}, {}
for i = 4, #ARGV, 4 do
  local id = ARGV[i + 1]
  local state = places.state(id)
  if state and UPDATES[ARGV[i]](id, state, ARGV[i + 2], ARGV[i + 3]) then
    done[#done + 1] = id
  else
    refused[#refused + 1] = {id, state or false}
  end
end

return job_control.answer(done, asked, refused)
