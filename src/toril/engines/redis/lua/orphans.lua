-- Which of these keys are jobs that stand nowhere: in no sorted set, and in no list. Of a queue with long lists none is.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now; ids
-- Returns ids
-- Events  none
-- uses places faults
local mistake = context.wrong('list', K.wait, K.active, K.paused)
  or context.wrong('zset', K.prioritized, K.delayed, K.waiting_children, K.completed, K.failed)
if mistake then return mistake end

local found, listed = {}, {}
for i = 2, #ARGV do
  local f, stands = redis.pcall('HMGET', P .. ARGV[i], F.name, F.added_at), false
  if f[1] and f[2] then
    for j = 1, #places.sets do stands = stands or call('ZSCORE', P .. places.sets[j][1], ARGV[i]) end
    if not stands then found[#found + 1] = ARGV[i] end
  end
end
if #found == 0 or not faults.can_walk() then return {} end
for i = 1, #faults.lists do
  for _, id in ipairs(call('LRANGE', P .. faults.lists[i], 0, -1)) do listed[id] = true end
end
local nowhere = {}
for i = 1, #found do
  if not listed[found[i]] then nowhere[#nowhere + 1] = found[i] end
end
return nowhere
