-- A page of the jobs in a state: the next to run first, the last to end first. A walk begins with the ceiling '': it leaves
-- out what was claimed since, so that a job that moves is not seen twice.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, state, how many, ceiling; where the last page ended: `s`, `l` or `p`, score, id; more ids before it
-- Returns the ceiling, rows (`s`, `l` or `p`, score, record), 1 if they were too large for more
-- Events  none
-- include begin
-- include records
-- include places
local ZSET = {completed = K.completed, failed = K.failed, delayed = K.delayed, prioritized = K.prioritized,
  waiting_children = K.waiting_children, waiting = K.suspects}
local state, most, rows, room = ARGV[2], tonumber(ARGV[3]), {}, N.page
local ceiling = tonumber(ARGV[4]) or tonumber(call('HGET', P .. K.toril, F.claims) or 0)
local newest_first = state == 'completed' or state == 'failed'

local function show(phase, id, score)
  local record = record_of(id, state, state == 'delayed' and score)
  if not record or has_moved(record, ceiling) then return end
  rows[#rows + 1], room = {phase, score, record}, room - size_of(record)
  if room < 0 then most = math.min(most, #rows) end
end

-- Entries of equal score stand in the order of their ids.
local function walk_zset(key, score, last)
  local verb, edge = 'ZRANGEBYSCORE', '+inf'
  if newest_first then verb, edge = 'ZREVRANGEBYSCORE', '-inf' end
  local from, offset = score ~= '' and score or (newest_first and '+inf' or '-inf'), 0
  while #rows < most do
    local found = call(verb, key, from, edge, 'WITHSCORES', 'LIMIT', offset, most)
    if #found == 0 then return end
    for i = 1, #found, 2 do
      local id = found[i]
      local seen = found[i + 1] == score and ((newest_first and id >= last) or (not newest_first and id <= last))
      if not seen and #rows < most and (state ~= 'waiting' or call('LPOS', P .. K.wait, id, 'RANK', -1)) then
        show('s', id, found[i + 1])
      end
    end
    offset = offset + #found / 2
  end
end

-- Where a walk over a list goes on, from its next end: after what was shown last, if some of it stands there still.
local function place_in(key, anchors)
  for i = 1, #anchors do
    local place = call('LPOS', key, anchors[i], 'RANK', -1)
    if place then return place - call('LLEN', key) - 1 end
  end
end

local function walk_list(key, at)
  while #rows < most do
    local found = call('LRANGE', key, at - most + 1, at)
    if #found == 0 then return end
    for i = #found, 1, -1 do
      local suspect = state == 'waiting' and call('ZSCORE', P .. K.suspects, found[i])
      if not suspect and #rows < most then show('l', found[i], '') end
    end
    at = at - #found
  end
end

-- What is parked, group by group: after those that were let in.
local function walk_parked(last)
  local found = call('ZRANGEBYLEX', P .. K.parked, last == '' and '-' or '(' .. last, '+', 'LIMIT', 0, most - #rows)
  for i = 1, #found do if #rows < most then show('p', groups.job_of(found[i]), found[i]) end end
  if #found > 0 and #rows < most then walk_parked(found[#found]) end  -- some were not to be shown
end

local phase, anchors = ARGV[5], {}
if state ~= 'active' and (phase == '' or phase == 's') then walk_zset(P .. ZSET[state], ARGV[6], ARGV[7]) end
for i = 7, phase == 'l' and #ARGV or 6 do anchors[#anchors + 1] = ARGV[i] end
-- If all of what was shown last has left, so has what came before it: then the walk goes on at the end.
if state == 'active' then walk_list(P .. K.active, place_in(P .. K.active, anchors) or -1) end
if state == 'waiting' and phase ~= 'p' then
  local at = place_in(P .. K.wait, anchors)  -- what versions before 6 have put aside comes first, as it will on resume
  if not at then walk_list(P .. K.paused, place_in(P .. K.paused, anchors) or -1) end
  walk_list(P .. K.wait, at or -1)
end
if state == 'waiting' and groups.used() then walk_parked(phase == 'p' and ARGV[6] or '') end
return {ceiling, rows, room < 0 and 1 or 0}
