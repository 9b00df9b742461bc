-- A circuit breaker's text, read or exchanged. What is written replaces what was read, or nothing happens: whoever decided
-- on what is no longer there has to decide anew.
-- KEYS    the key of all circuits, the fleet's base
-- ARGV    now, the circuit's key; to write also the text that was read, or nothing, and the new one, or nothing
-- Returns the text as it is or was, now, 1 if it was written
-- Events  none
-- uses nothing
local found = call('HGET', P, ARGV[2])
if not ARGV[3] or (found or '') ~= ARGV[3] then return {found, now, 0} end
if ARGV[4] == '' then
  call('HDEL', P, ARGV[2])
else
  call('HSET', P, ARGV[2], ARGV[4])
end
return {found, now, 1}
