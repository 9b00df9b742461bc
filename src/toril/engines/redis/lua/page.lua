-- A page of the jobs in a state: the next to run first, the last to end first. A walk begins with the ceiling '': it leaves
-- out what was claimed since, so that a job that moves is not seen twice.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, state, how many, ceiling; where the last page ended: `s`, `l` or `p`, score, id; more ids before it
-- Returns the ceiling, rows (`s`, `l` or `p`, score or place, record), their bytes: if more than N.look, there may be others
-- Events  none
-- uses jobs groups
local ZSET = {completed = K.completed, failed = K.failed, delayed = K.delayed, prioritized = K.prioritized,
  waiting_children = K.waiting_children, waiting = K.suspects}
local state, most, rows, bytes = ARGV[2], tonumber(ARGV[3]), {}, 0
local ceiling = tonumber(ARGV[4]) or tonumber(call('HGET', P .. K.toril, F.claims) or 0)
local phase, newest_first = ARGV[5], state == 'completed' or state == 'failed'

local function show(in_phase, id, score)
  local record = jobs.record(id, state, state == 'delayed' and score)
  if not record or jobs.has_moved(record, ceiling) then return end
  rows[#rows + 1], bytes = {in_phase, score, record}, bytes + jobs.record_size(record)
  if bytes > N.look then most = math.min(most, #rows) end
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
  local place = phase == 'l' and #ARGV[6] < 16 and ARGV[6]:match('^-%d+$')
  if place and call('LINDEX', key, place) == anchors[1] then return place - 1 end  -- nothing has moved
  for i = 1, #anchors do
    local found = call('LPOS', key, anchors[i], 'RANK', -1)
    if found then return found - call('LLEN', key) - 1 end
  end
end

local function walk_list(key, at)
  while #rows < most do
    local found = call('LRANGE', key, at - most + 1, at)
    if #found == 0 then return end
    for i = #found, 1, -1 do
      if #rows < most and not (state == 'waiting' and call('ZSCORE', P .. K.suspects, found[i])) then
        show('l', found[i], string.format('%d', at - #found + i))
      end
    end
    at = at - #found
  end
end

-- What is parked, group by group: after those that were admitted.
local function walk_parked(last)
  local found = call('ZRANGEBYLEX', P .. K.parked, last == '' and '-' or '(' .. last, '+', 'LIMIT', 0, most - #rows)
  for i = 1, #found do if #rows < most then show('p', groups.job_of(found[i]), found[i]) end end
  if #found > 0 and #rows < most then walk_parked(found[#found]) end  -- some were not to be shown
end

if state ~= 'active' and (phase == '' or phase == 's') then walk_zset(P .. ZSET[state], ARGV[6], ARGV[7]) end
local anchors = {unpack(ARGV, 7, phase == 'l' and #ARGV or 6)}
-- If all of what was shown last has left, so has what came before it: then the walk goes on at the end.
if state == 'active' then walk_list(P .. K.active, place_in(P .. K.active, anchors) or -1) end
if state == 'waiting' and phase ~= 'p' then
  local at = place_in(P .. K.wait, anchors)  -- what versions before 6 have put aside comes first, as it will on resume
  if not at then walk_list(P .. K.paused, place_in(P .. K.paused, anchors) or -1) end
  walk_list(P .. K.wait, at or -1)
end
if state == 'waiting' and groups.used() then walk_parked(phase == 'p' and ARGV[6] or '') end
return {ceiling, rows, bytes}
