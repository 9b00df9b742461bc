-- Keep leases alive for a time from now.
-- KEYS    nothing of the queues: leases of several may come together; the fleet's base
-- ARGV    now, ttl; for each lease the queue's base, id, token
-- Returns the places of those that were lost, and {place, reason} of those that someone wants stopped
-- Events  none
-- uses nothing
local ttl, lost, stopped = tonumber(ARGV[2]), {}, {}
for i = 3, #ARGV, 3 do
  local base, id, token = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local deadline = call('GET', base .. id .. K.lock) == token and call('ZSCORE', base .. K.deadlines, id)
  if deadline and tonumber(deadline) > now then
    call('SET', base .. id .. K.lock, token, 'PX', ttl + slack)
    call('ZADD', base .. K.deadlines, 'XX', now + ttl, id)
    call('SREM', base .. K.stalled, id)
    local reason = call('HGET', base .. id, F.cancelling)
    if reason then stopped[#stopped + 1] = {i / 3 - 1, reason} end
  else
    lost[#lost + 1] = i / 3 - 1
  end
end
return {lost, stopped}
