-- Remove jobs that have not started.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; limit; states
-- Returns ids, 1 if there may be more
-- Events  none, as in BullMQ
-- include begin
-- include guard
-- include calls
-- include sweeping
local before, late = recalled()
if late then return late end
if before then return before end
local mistake = wrong('list', K.wait) or wrong('zset', K.prioritized, K.delayed, K.suspects)
if mistake then return mistake end

local limit = tonumber(ARGV[4])
for i = 5, #ARGV do sweep_state(ARGV[i], limit, is_current_run) end
flush_gone()
flush_told()
groups.flush()
local answer = {swept, #swept == limit and 1 or 0}
remember(answer)
return answer
