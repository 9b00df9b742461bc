-- Add children to a running job, from whoever runs it.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; the job, its token; the children as JSON (see `flows.node`)
-- Returns verdict; or {'refused', why, …}
-- Events  added, waiting, delayed, waiting-children
-- uses calls leases flows
local before = calls.recall()
if before then return before end
local verdict = 0
if not leases.held({ARGV[4]}, {ARGV[5]})[1] then
  verdict = call('EXISTS', P .. ARGV[4]) == 1 and 1 or 2
else
  local refusal, mistake = flows.decide_all(cjson.decode(ARGV[6]))
  if mistake then return mistake end
  if refusal then return {'refused', refusal} end
  flows.write()
end
calls.remember(verdict)
return verdict
