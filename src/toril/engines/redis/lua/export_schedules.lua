-- Take a queue's schedules, each with the run that it has to do with, unless that runs.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, the queue's name, the store they are for, a mark, how many
-- Returns number, mark, items, now; nothing if none can leave
-- Errors  TORILMOVING
-- Events  none
-- uses schedules export
local before = export.under_way()
if before then return before end
local mistake = schedules.wrong()
if mistake then return mistake end

local function remove(schedule)
  call('ZREM', P .. K.repeat, schedule)
  call('DEL', P .. K.schedule .. schedule)
  call('HDEL', schedules.own, schedule, 'paused:' .. schedule, 'over:' .. schedule, 'last:' .. schedule)
end

-- A run that it has to do with: gone or ended, taken along, or (nil) one that stays.
local function along(id)
  local state = id and export.standing(id)
  if not state or state == 'completed' or state == 'failed' then return false end
  if not export.take(P, id, true) then return nil end
  return id
end

local function take_schedule(schedule, slot)
  local run, last = schedules.run_id(schedule, slot), call('HGET', schedules.own, 'last:' .. schedule)
  local row = {schedule, string.format('%.0f', slot), schedules.is_flagged(schedule, 'paused') and 1 or 0,
    schedules.is_flagged(schedule, 'over') and 1 or 0, 0, call('HGET', schedules.own, schedule), call('HMGET', P .. K.schedule .. schedule, F.schedule_fields)}
  local state = export.standing(run)
  local waits = (state == 'waiting' or state == 'prioritized' or state == 'delayed') and call('HGET', P .. run, F.starts) == false
  if state == 'active' or (last and export.standing(last) == 'active') then return end
  local started = along(last)
  if started == nil or (not waits and last ~= run and along(run) == nil) then return end
  if waits then schedules.drop_run(schedule) end
  remove(schedule)
  call('SADD', P .. K.departed, schedule)
  export.items[#export.items + 1] = {'schedule', ARGV[2], row, waits and 1 or 0, started}
  export.taken = export.taken + 1
end

for _, schedule in ipairs(export.is_held_up() and {} or call('ZRANGE', P .. K.repeat, 0, -1)) do
  local slot = schedules.slot(schedule)
  if export.is_full() then break end
  if slot and call('SISMEMBER', P .. K.departed, schedule) == 1 then
    schedules.drop_run(schedule)
    remove(schedule)
  elseif slot then
    take_schedule(schedule, slot)
  end
end
export.flush()
return export.send(export.items)
