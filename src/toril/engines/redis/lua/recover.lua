-- Take back jobs whose lease ran out, and those of the dead even before.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, limit, cause or nothing, `1` if there is a cause; for each lease of the dead id, token
-- Returns {ids given back, ids failed, ids cancelled}, the next deadline, 1 if there are more, now
-- Events  failed, waiting, stalled
-- include begin
-- include guard
-- include endings
-- include places
-- include marks
-- include stalled
-- include tending
local limit, back = tonumber(ARGV[2]), {{}, {}, {}}
local mistake = wrong('list', K.wait, K.active) or wrong('zset', K.marker, K.deadlines, K.suspects)
  or wrong('stream', K.events) or wrong('hash', K.meta, K.toril) or wrong('set', K.stalled) or wrong_for_ending('failed', true)
if mistake then return mistake end

local lost, seen = {}, {}
for i = 5, #ARGV, 2 do
  if not seen[ARGV[i]] and call('GET', P .. ARGV[i] .. K.lock) == ARGV[i + 1] and call('ZSCORE', P .. K.deadlines, ARGV[i]) then
    seen[ARGV[i]] = true
    lost[#lost + 1] = ARGV[i]
  end
end
local dead = #lost
local overdue = call('ZRANGEBYSCORE', P .. K.deadlines, '-inf', now, 'LIMIT', 0, limit)
for i = 1, #overdue do
  if not seen[overdue[i]] then lost[#lost + 1] = overdue[i] end
end
for i, id in ipairs(lost) do
  call('ZREM', P .. K.deadlines, id)
  local ours = i <= dead or not is_anothers(id)
  if ours and call('LREM', P .. K.active, -1, id) > 0 then
    if i > dead then figures.one(F.run_out) end
    take_back(id, back)
  end
end
local soonest = strangers(back)
if #back[1] + #back[2] + #back[3] > 0 then
  flush_endings()
  groups.flush()
  trim_events(call('HGET', P .. K.meta, F.max_events))
  if not blocked() then call('ZADD', P .. K.marker, 0, '0') end
end
groups.tend(N.tended)
if groups.let_in_some or groups.news then mark_ready() end
local first = call('ZRANGE', P .. K.deadlines, 0, 0, 'WITHSCORES')
local following = tonumber(first[2]) or soonest or false
if soonest then following = math.min(following, soonest) end
return {back, following, #overdue == limit and 1 or 0, now}
