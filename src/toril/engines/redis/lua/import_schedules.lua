-- Store a queue's schedules that come from another store, once, with the jobs that belong to them.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, that store, the load's number, its mark; kinds (job, letter, schedule) and parcels as JSON
-- Returns `stored`, `again`, `stale` or `clash`; queue and id of those left out, or that clash
-- Events  removed, added, waiting, delayed
-- include begin
-- include unloading
-- include schedules
local HOME = P
local mistake = wrong_for_schedules()
if mistake then return mistake end

local function keeps_another_time(schedule, fields)
  local given = {}
  for i = 1, #fields, 2 do given[fields[i]] = fields[i + 1] end
  for _, name in ipairs({F.pattern, F.every, F.tz}) do
    if (call('HGET', hash_of(schedule), name) or nil) ~= (given[name] or nil) then return true end
  end
  return false
end

-- Queue, id, slot, count, own settings, fields, whether its run has to be made, paused, over, the job started last. In place
-- of one that keeps the same time; one that keeps another was declared later, and stays.
local function put_schedule(s)
  local schedule, slot = s[2], tonumber(s[3])
  at(HOME)
  if slot_of(schedule) and keeps_another_time(schedule, s[6]) then return end
  drop_run(schedule)
  know_queue(s[1])
  call('DEL', hash_of(schedule))
  call('HSET', hash_of(schedule), F.made, s[4], unpack(s[6]))
  call('HSET', own_key, schedule, s[5])
  call('HDEL', own_key, 'paused:' .. schedule, 'over:' .. schedule, 'last:' .. schedule)
  if s[8] == 1 then call('HSET', own_key, 'paused:' .. schedule, 1) end
  if s[9] == 1 then call('HSET', own_key, 'over:' .. schedule, 1) end
  if s[10] ~= '' then call('HSET', own_key, 'last:' .. schedule, s[10]) end
  call('ZADD', P .. K.repeat, s[3], schedule)
  if s[7] == 1 and call('EXISTS', P .. run_name(schedule, slot)) == 0 then make_run(schedule, slot, s[4]) end
end

return unload({job = put_job, letter = put_letter, schedule = put_schedule})
