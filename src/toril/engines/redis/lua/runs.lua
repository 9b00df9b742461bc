-- A page of run records, newest first.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, ending, the number before which to begin or '', how many
-- Returns records
-- Events  none
-- uses metrics
local key = P .. ({completed = K.runs_completed, failed = K.runs_failed, cancelled = K.runs_cancelled})[ARGV[2]]
local newest = call('LINDEX', key, 0)
if not newest then return {} end
local first = 0
if ARGV[3] ~= '' then first = math.max(0, cmsgpack.unpack(newest)[1] - tonumber(ARGV[3]) + 1) end
local found = call('LRANGE', key, first, math.min(first + tonumber(ARGV[4]), N.runs) - 1)
for i = 1, #found do
  found[i] = metrics.unpack_run(found[i])
  found[i][12] = found[i][12] and 1 or 0
end
return found
