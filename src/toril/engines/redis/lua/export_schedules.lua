-- Take a queue's schedules, each with the run that it has to do with, unless that runs.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, the queue's name, the store they are for, a mark, how many
-- Returns number, mark, parcels, now; nothing if none can leave
-- Errors  TORILMOVING
-- Events  none
-- include begin
-- include loading
-- include schedules
-- include flushing
local before = on_its_way()
if before then return before end
local mistake = wrong_for_schedules()
if mistake then return mistake end

local function remove(schedule)
  call('ZREM', P .. K.repeat, schedule)
  call('DEL', hash_of(schedule))
  call('HDEL', own_key, schedule, 'paused:' .. schedule, 'over:' .. schedule, 'last:' .. schedule)
end

-- A run that it has to do with: gone or ended, taken along, or (nil) one that stays.
local function along(id)
  local state = id and standing(id)
  if not state or state == 'completed' or state == 'failed' then return false end
  if not take(P, id, true) then return nil end
  return id
end

local function take_schedule(schedule, slot)
  local run, last = run_name(schedule, slot), call('HGET', own_key, 'last:' .. schedule)
  local row = {schedule, string.format('%.0f', slot), is_flagged(schedule, 'paused') and 1 or 0,
    is_flagged(schedule, 'over') and 1 or 0, 0, call('HGET', own_key, schedule), call('HMGET', hash_of(schedule), F.schedule_fields)}
  local state = standing(run)
  local waits = (state == 'waiting' or state == 'prioritized' or state == 'delayed') and call('HGET', P .. run, F.starts) == false
  if state == 'active' or (last and standing(last) == 'active') then return end
  local started = along(last)
  if started == nil or (not waits and last ~= run and along(run) == nil) then return end
  if waits then drop_run(schedule) end
  remove(schedule)
  call('SADD', P .. K.departed, schedule)
  pack({'schedule', ARGV[2], row, waits and 1 or 0, started})
  taken = taken + 1
end

for _, schedule in ipairs(is_held_up() and {} or call('ZRANGE', P .. K.repeat, 0, -1)) do
  local slot = slot_of(schedule)
  if is_full() then break end
  if slot and call('SISMEMBER', P .. K.departed, schedule) == 1 then
    drop_run(schedule)
    remove(schedule)
  elseif slot then
    take_schedule(schedule, slot)
  end
end
flush_leaving()
return send(parcels)
