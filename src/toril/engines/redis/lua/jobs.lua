-- Jobs by their ids.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now; ids
-- Returns for each false, or its fields, id, state, score, deadline
-- Events  none
-- uses jobs places
local found = {}
for i = 2, #ARGV do
  local state = places.state(ARGV[i])
  found[i - 1] = state and jobs.record(ARGV[i], state, state == 'delayed' and call('ZSCORE', P .. K.delayed, ARGV[i])) or false
end
return found
