-- Remove jobs that have not started.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; limit; states
-- Returns ids, 1 if there may be more
-- Events  none, as in BullMQ
-- uses calls jobs groups parents schedules sweep
local before = calls.recall()
if before then return before end
local mistake = context.wrong('list', K.wait) or context.wrong('zset', K.prioritized, K.delayed, K.suspects)
if mistake then return mistake end

local limit = tonumber(ARGV[4])
for i = 5, #ARGV do sweep.state(ARGV[i], limit, schedules.stays) end
jobs.flush_deleted()
parents.flush()
groups.flush()
local answer = {sweep.ids, #sweep.ids == limit and 1 or 0}
calls.remember(answer)
return answer
