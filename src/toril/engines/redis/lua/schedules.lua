-- Schedules as they stand.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now; `these` and ids, or `overdue` and a limit
-- Returns now, and for each schedule that there is: id, slot, paused, over, busy, its own settings, the hash's fields
-- Events  none
-- include begin
-- include guard
-- include schedules
local ids, found, overdue = {unpack(ARGV, 3)}, {}, ARGV[2] == 'overdue'
if overdue then ids = call('ZRANGEBYSCORE', P .. K.repeat, '-inf', now) end

for _, schedule in ipairs(ids) do
  local slot = slot_of(schedule)
  local paused, over = is_flagged(schedule, 'paused'), is_flagged(schedule, 'over')
  local wanted = slot and (not overdue or not (paused or over or is_unfinished(run_name(schedule, slot))))
  if wanted then
    local last = call('HGET', own_key, 'last:' .. schedule)
    local busy = last and is_unfinished(last)
    found[#found + 1] = {schedule, string.format('%.0f', slot), paused and 1 or 0, over and 1 or 0, busy and 1 or 0,
      call('HGET', own_key, schedule), call('HMGET', hash_of(schedule), F.schedule_fields)}
    if overdue and #found >= tonumber(ARGV[3]) then break end
  end
end
return {now, found}
