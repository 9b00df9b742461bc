-- Store a queue's schedules that come from another store, once, with the jobs that belong to them.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, that store, the batch's number, its mark; kinds (job, letter, schedule) and items as JSON
-- Returns `stored`, `again`, `stale` or `clash`; queue and id of those left out, or that clash
-- Events  removed, added, waiting, delayed
-- uses queue places schedules import
local HOME = P
local mistake = schedules.wrong()
if mistake then return mistake end

local function keeps_another_time(schedule, fields)
  local given = {}
  for i = 1, #fields, 2 do given[fields[i]] = fields[i + 1] end
  for _, name in ipairs({F.pattern, F.every, F.tz}) do
    if (call('HGET', P .. K.schedule .. schedule, name) or nil) ~= (given[name] or nil) then return true end
  end
  return false
end

-- Queue, id, slot, count, own settings, fields, whether its run has to be made, paused, over, the job started last. In place
-- of one that keeps the same time; one that keeps another was declared later, and stays.
local function put_schedule(s)
  local schedule, slot = s[2], tonumber(s[3])
  places.switch_queue(HOME)
  if schedules.slot(schedule) and keeps_another_time(schedule, s[6]) then return end
  schedules.drop_run(schedule)
  queue.register(s[1])
  call('DEL', P .. K.schedule .. schedule)
  call('HSET', P .. K.schedule .. schedule, F.made, s[4], unpack(s[6]))
  call('HSET', schedules.own, schedule, s[5])
  call('HDEL', schedules.own, 'paused:' .. schedule, 'over:' .. schedule, 'last:' .. schedule)
  if s[8] == 1 then call('HSET', schedules.own, 'paused:' .. schedule, 1) end
  if s[9] == 1 then call('HSET', schedules.own, 'over:' .. schedule, 1) end
  if s[10] ~= '' then call('HSET', schedules.own, 'last:' .. schedule, s[10]) end
  call('ZADD', P .. K.repeat, s[3], schedule)
  if s[7] == 1 and call('EXISTS', P .. schedules.run_id(schedule, slot)) == 0 then schedules.make_run(schedule, slot, s[4]) end
end

return import.batch({job = import.job, letter = import.dead_letter, schedule = put_schedule})
