-- Say which faults are there, and mend them. Each is looked for again in the step that mends it.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, `look` or `mend`; for each fault its kind, whose it is, the place where it shows
-- Returns for each 1 if it is there, 0 if not, -1 if it was not looked for: too much had to be walked, so ask again
-- Events  waiting, delayed, waiting-children, added
-- include begin
-- include guard
-- include belongings
local mistake = wrong('list', K.wait, K.active, K.paused) or wrong('stream', K.events) or wrong('hash', K.meta, K.toril)
  or wrong('zset', K.prioritized, K.delayed, K.waiting_children, K.completed, K.failed, K.marker, K.deadlines, K.suspects)
  or wrong('set', K.stalled) or wrong('string', K.pc) or groups.wrong()
if mistake then return mistake end

local mends, found, any = ARGV[2] == 'mend', {}, false
for i = 3, #ARGV, 3 do
  local n, kind = #found + 1, ARGV[i]
  if walked > N.walked then
    found[n] = -1
  else
    found[n] = FAULT[kind](ARGV[i + 1], ARGV[i + 2]) and 1 or 0
    if mends and found[n] == 1 then
      any = true
      MEND[kind](ARGV[i + 1], ARGV[i + 2])
    end
  end
end
if any then
  flush_gone()
  mark_due()
  if call('EXISTS', P .. K.meta) == 1 then mark_ready() end
end
return found
