-- Change data, priority or delay of jobs whose state allows it, in order.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; for each update kind (data, priority, delay), id, value, `1` for the front
-- Returns ids done, none asked, {id, state} of those refused
-- Events  delayed
-- include begin
-- include guard
-- include calls
-- include endings
-- include marks
-- include places
-- include states
local before, late = recalled()
if late then return late end
if before then return before end
local mistake = wrong('list', K.wait) or wrong('zset', K.prioritized, K.delayed, K.marker, K.suspects)
  or wrong('stream', K.events) or wrong('hash', K.meta) or wrong('string', K.pc)
if mistake then return mistake end

local WAITS = {waiting = true, prioritized = true, delayed = true}
local UPDATES = {}

function UPDATES.data(id, _, data)
  call('HSET', P .. id, F.data, data)
  return true
end

function UPDATES.delay(id, state, delay)
  if state ~= 'delayed' then return false end
  call('ZREM', P .. K.delayed, id)
  call('HSET', P .. id, F.delay, delay)
  delay_until(id, now + delay)
  event('delayed', 'jobId', id, 'delay', now + delay)
  return true
end

-- A suspect stays where it is claimed alone.
function UPDATES.priority(id, state, priority, front)
  if not WAITS[state] then return false end
  local parked = groups.used() and groups.is_parked(id)
  if parked then leave(id, state) end
  call('HSET', P .. id, F.priority, priority)
  if parked then return to_back(id, tonumber(priority)) or true end
  if state ~= 'delayed' and not call('ZSCORE', P .. K.suspects, id) then
    leave(id, state)
    if front == '1' then to_front(id, tonumber(priority)) else to_back(id, tonumber(priority)) end
  end
  return true
end

local done, asked, refused = {}, {}, {}
for i = 4, #ARGV, 4 do
  local id = ARGV[i + 1]
  local state = state_of(id)
  if state and UPDATES[ARGV[i]](id, state, ARGV[i + 2], ARGV[i + 3]) then
    done[#done + 1] = id
  else
    refused[#refused + 1] = {id, state or false}
  end
end
-- include changed
