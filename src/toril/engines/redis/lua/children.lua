-- A page of what a job knows of its children: first the open ones, then those that have returned, then the others.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now; the key of the job or of its dead letter, which of the four, where its walk stands, about how many
-- Returns where to go on, or 0; {key, text} each
-- Events  none
-- uses nothing
local key, found = ARGV[2], {}
local KINDS = {{'SSCAN', K.dependencies}, {'HSCAN', K.processed}, {'HSCAN', K.child_failures}, {'ZSCAN', K.unsuccessful}}
local verb, name = unpack(KINDS[tonumber(ARGV[3])])
local reply = call(verb, key .. name, ARGV[4], 'COUNT', ARGV[5])
for i = 1, #reply[2], verb == 'SSCAN' and 1 or 2 do
  local child = reply[2][i]
  if child ~= key .. K.hold then found[#found + 1] = {child, verb == 'HSCAN' and reply[2][i + 1] or false} end
end
return {reply[1], found}
