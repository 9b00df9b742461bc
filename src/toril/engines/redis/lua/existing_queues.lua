-- Which of these queues there are.
-- KEYS    nothing of the queues: several come together; the fleet's base
-- ARGV    now; the queues' bases
-- Returns for each 1 or 0
-- Events  none
-- uses nothing
local found = {}
for i = 2, #ARGV do found[i - 1] = call('EXISTS', ARGV[i] .. K.meta) end
return found
