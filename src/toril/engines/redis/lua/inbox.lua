-- The signals of a job that nobody has read.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now; the job's key
-- Returns for each number, name, key, id, at, payload
-- Events  none
-- uses signals
if call('TYPE', ARGV[2]).ok ~= 'hash' then return {} end
local inbox = signals.list(ARGV[2], F.inbox)
table.sort(inbox, function(one, other) return one[1] < other[1] end)
return inbox
