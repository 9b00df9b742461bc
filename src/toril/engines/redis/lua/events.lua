-- What happened after an entry of the stream, to all jobs or to one.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, the entry after which to begin or '', how many to look at, a job's id or ''
-- Returns entries, 1 if some before them were trimmed away unseen, the last entry that was looked at
-- Events  none
-- uses nothing
local key, after = P .. K.events, ARGV[2]
local looked = call('XRANGE', key, after == '' and '-' or '(' .. after, '+', 'COUNT', ARGV[3])
local found, last = looked, looked[#looked] and looked[#looked][1] or ''

local function is_of(id, fields)
  for i = 1, #fields, 2 do
    if fields[i] == 'jobId' then return fields[i + 1] == id end
  end
end

if ARGV[4] ~= '' then
  found = {}
  for i = 1, #looked do
    if is_of(ARGV[4], looked[i][2]) then found[#found + 1] = looked[i] end
  end
end
if after == '' or call('EXISTS', key) == 0 then return {found, 0, last} end

-- Servers before 7 do not say how many entries there have been: they count as trimmed once the stream is full.
local trimmed, info = call('XLEN', key) >= N.events, call('XINFO', 'STREAM', key)
for i = 1, #info, 2 do
  if info[i] == 'entries-added' then trimmed = info[i + 1] > call('XLEN', key) end
end
local first = call('XRANGE', key, '-', '+', 'COUNT', 1)[1]
local kept = first and call('XRANGE', key, '-', after, 'COUNT', 1)[1]
return {found, trimmed and not kept and 1 or 0, last}
