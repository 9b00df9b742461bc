-- What happened after an entry of the stream.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, the entry after which to begin or '', how many
-- Returns entries, 1 if some before them were trimmed away unseen
-- Events  none
-- include begin
local key, after = P .. K.events, ARGV[2]
local found = call('XRANGE', key, after == '' and '-' or '(' .. after, '+', 'COUNT', ARGV[3])
if after == '' or call('EXISTS', key) == 0 then return {found, 0} end

-- Servers before 7 do not say how many entries there have been: they count as trimmed once the stream is full.
local trimmed, info = call('XLEN', key) >= N.events, call('XINFO', 'STREAM', key)
for i = 1, #info, 2 do
  if info[i] == 'entries-added' then trimmed = info[i + 1] > call('XLEN', key) end
end
local first = call('XRANGE', key, '-', '+', 'COUNT', 1)[1]
local kept = first and call('XRANGE', key, '-', after, 'COUNT', 1)[1]
return {found, trimmed and not kept and 1 or 0}
