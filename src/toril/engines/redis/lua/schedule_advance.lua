-- From one run of a schedule go on to the next; or let a paused schedule go on.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now; `advance` or `resume`, the schedule, the slot it is expected at, the next or nothing, the job that started
-- Returns `done`, `stale` or `taken`
-- Events  added, waiting, delayed
-- uses schedules
local verb, schedule, since, to = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local mistake = schedules.wrong()
if mistake then return mistake end
if schedules.slot(schedule) ~= since or schedules.is_flagged(schedule, 'over') then return 'stale' end
if ARGV[6] ~= '' then call('HSET', schedules.own, 'last:' .. schedule, ARGV[6]) end
if schedules.is_flagged(schedule, 'paused') ~= (verb == 'resume') then return 'stale' end
if to and call('EXISTS', P .. schedules.run_id(schedule, to)) == 1 then return 'taken' end

call('HDEL', schedules.own, 'paused:' .. schedule)
if to then
  local made = tonumber(call('HGET', P .. K.schedule .. schedule, F.made) or nil) or 1
  schedules.make_run(schedule, to, verb == 'resume' and made or made + 1)
else
  call('HSET', schedules.own, 'over:' .. schedule, 1)
end
return 'done'
