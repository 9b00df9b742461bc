-- Schedules as they stand.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now; `these` and ids, or `overdue` and a limit
-- Returns now, and for each schedule that there is: id, slot, paused, over, busy, its own settings, the hash's fields
-- Events  none
-- uses schedules
local ids, found, overdue = {unpack(ARGV, 3)}, {}, ARGV[2] == 'overdue'
if overdue then ids = call('ZRANGEBYSCORE', P .. K.repeat, '-inf', now) end

for _, schedule in ipairs(ids) do
  local slot = schedules.slot(schedule)
  local paused, over = schedules.is_flagged(schedule, 'paused'), schedules.is_flagged(schedule, 'over')
  local wanted = slot and (not overdue or not (paused or over or schedules.is_unfinished(schedules.run_id(schedule, slot))))
  if wanted then
    local last = call('HGET', schedules.own, 'last:' .. schedule)
    local busy = last and schedules.is_unfinished(last)
    found[#found + 1] = {schedule, string.format('%.0f', slot), paused and 1 or 0, over and 1 or 0, busy and 1 or 0,
      call('HGET', schedules.own, schedule), call('HMGET', P .. K.schedule .. schedule, F.schedule_fields)}
    if overdue and #found >= tonumber(ARGV[3]) then break end
  end
end
return {now, found}
