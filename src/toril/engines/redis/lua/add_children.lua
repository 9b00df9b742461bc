-- Add children to a running job, from whoever runs it.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; the job, its token; the children as JSON (see lib/nodes)
-- Returns verdict; or {'refused', why, …}
-- Events  added, waiting, delayed, waiting-children
-- include begin
-- include calls
-- include leases
-- include attaching
local before, late = recalled()
if late then return late end
if before then return before end
local verdict = 0
if not holds({ARGV[4]}, {ARGV[5]})[1] then
  verdict = call('EXISTS', P .. ARGV[4]) == 1 and 1 or 2
else
  local refusal, mistake = decide_all(cjson.decode(ARGV[6]))
  if mistake then return mistake end
  if refusal then return {'refused', refusal} end
  write_all()
end
remember(verdict)
return verdict
