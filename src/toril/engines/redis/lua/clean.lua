-- Remove jobs that have been in a state for longer than a time: since they ended, or else since they were added.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; limit, state, grace
-- Returns ids, 1 if there may be more
-- Events  cleaned
-- uses calls events jobs groups parents schedules sweep
local before = calls.recall()
if before then return before end
local mistake = context.wrong('list', K.wait)
  or context.wrong('zset', K.prioritized, K.delayed, K.completed, K.failed, K.suspects) or context.wrong('stream', K.events)
if mistake then return mistake end

local limit, state, cutoff = tonumber(ARGV[4]), ARGV[5], now - tonumber(ARGV[6])

local function is_younger(id)
  local added = call('HGET', P .. id, F.added_at)
  return (context.number(added) or 0) > cutoff or schedules.stays(id)
end

if state == 'completed' or state == 'failed' then
  local key = state == 'completed' and K.completed or K.failed
  local ids = call('ZRANGEBYSCORE', P .. key, '-inf', '(' .. (cutoff + 1), 'LIMIT', 0, limit)
  for i = 1, #ids do
    call('ZREM', P .. key, ids[i])
    sweep.job(ids[i])
  end
else
  local suspects = call('ZRANGE', P .. K.suspects, 0, -1, 'WITHSCORES')
  sweep.state(state, limit, is_younger)
  for i = 1, #suspects, 2 do
    if call('EXISTS', P .. suspects[i]) == 1 and call('LPOS', P .. K.wait, suspects[i], 'RANK', -1) then
      call('ZADD', P .. K.suspects, suspects[i + 1], suspects[i])
    end
  end
end
jobs.flush_deleted()
parents.flush()
groups.flush()
if #sweep.ids > 0 then events.add('cleaned', 'count', #sweep.ids) end
local answer = {sweep.ids, #sweep.ids == limit and 1 or 0}
calls.remember(answer)
return answer
