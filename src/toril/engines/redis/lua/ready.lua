-- Which queues may have something to claim. It costs less than a claim, and one call asks for all queues of a process.
-- KEYS    nothing of the queues: several are asked for together; the fleet's base
-- ARGV    now; the queues' bases
-- Returns the bases of those in which jobs are ready, or due, or wait for their group's turn
-- Events  none
-- uses nothing
local ready = {}
for i = 2, #ARGV do
  local base = ARGV[i]
  if call('EXISTS', base .. K.wait, base .. K.prioritized, base .. K.parked) > 0
    or redis.pcall('ZCOUNT', base .. K.delayed, '-inf', (now + 1) * N.ties - 1) ~= 0 then
    ready[#ready + 1] = base
  end
end
return ready
