-- Take what belongs to the whole store: how long dead letters are kept, and circuits.
-- KEYS    the dead letters' base, the fleet's base
-- ARGV    now, nothing, the store they are for, a mark
-- Returns number, mark, items, now; nothing if there is nothing
-- Errors  TORILMOVING
-- Events  none
-- uses export
local before = export.under_way()
if before then return before end
local kept, circuits = call('HGET', P .. K.toril, F.keep_letters), call('HGETALL', W .. G.circuits)
call('HDEL', P .. K.toril, F.keep_letters)
call('DEL', W .. G.circuits)
return export.send((kept or #circuits > 0) and {{'facts', kept, circuits}} or {})
