-- Pause or remove schedules, with their runs that have not started.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now; `pause`, `remove` or `sync`; the schedules, for `sync` an owner and those of its schedules that stay
-- Returns the schedules that were paused or removed
-- Events  removed
-- uses jobs places schedules
local mistake = schedules.wrong()
if mistake then return mistake end
local verb, chosen = ARGV[2], {unpack(ARGV, 3)}
if verb == 'sync' then
  local stays, all = {}, call('HGETALL', schedules.own)
  local owner = chosen[1]
  for i = 2, #chosen do stays[chosen[i]] = true end
  chosen = {}
  for i = 1, #all, 2 do
    if not all[i]:find(':', 1, true) and not stays[all[i]] and jobs.options(all[i + 1]).owner == owner then
      chosen[#chosen + 1] = all[i]
    end
  end
end

local done = {}
for _, schedule in ipairs(chosen) do
  if schedules.slot(schedule) then
    schedules.drop_run(schedule)
    done[#done + 1] = schedule
    if verb == 'pause' then call('HSET', schedules.own, 'paused:' .. schedule, 1) end
  end
  if verb ~= 'pause' then
    call('ZREM', P .. K.repeat, schedule)
    call('DEL', P .. K.schedule .. schedule)
    call('HDEL', schedules.own, schedule, 'paused:' .. schedule, 'over:' .. schedule, 'last:' .. schedule)
  end
end
places.mark_due()
return done
