-- Which of these keys are jobs that stand in no sorted set.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now; ids
-- Returns ids
-- Events  none
-- include begin
-- include guard
-- include states
local mistake = wrong('zset', K.prioritized, K.delayed, K.waiting_children, K.completed, K.failed)
if mistake then return mistake end

local found = {}
for i = 2, #ARGV do
  local f, stands = redis.pcall('HMGET', P .. ARGV[i], F.name, F.added_at), false
  if f[1] and f[2] then
    for j = 1, #ZSETS do stands = stands or call('ZSCORE', P .. ZSETS[j][1], ARGV[i]) end
    if not stands then found[#found + 1] = ARGV[i] end
  end
end
return found
