-- Keep what belongs to the whole of another store, once, where this one knows nothing of it.
-- KEYS    the dead letters' base, the fleet's base
-- ARGV    now, that store, the batch's number, its mark; how long dead letters are kept, or nothing; circuits and their texts
-- Returns `stored`, `again` or `stale`; nothing
-- Events  none
-- uses import
local before = import.seen_before()
if before then return {before, {}} end
if ARGV[5] ~= '' then call('HSETNX', P .. K.toril, F.keep_letters, ARGV[5]) end
for i = 6, #ARGV, 2 do call('HSETNX', W .. G.circuits, ARGV[i], ARGV[i + 1]) end
import.record_arrival()
return {'stored', {}}
