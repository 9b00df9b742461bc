-- Make or change a schedule, and its run in place of one that has not started.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now; the queue's name, the schedule, slot, the slot it is expected at or nothing; its settings as JSON;
--         then fields and values of the scheduler's hash
-- Returns `done`, `stale` or `taken`
-- Events  removed, added, waiting, delayed
-- uses queue schedules
local schedule, slot, expected = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local mistake = schedules.wrong()
if mistake then return mistake end
local before = schedules.slot(schedule)
if before ~= expected then return 'stale' end
local id = schedules.run_id(schedule, slot)
-- A slot whose run has started has had its run, even if nothing of it is left.
local waits, paused = before == slot and schedules.is_waiting(id), schedules.is_flagged(schedule, 'paused')
if not waits and (call('EXISTS', P .. id) == 1 or (before == slot and not paused)) then return 'taken' end

schedules.drop_run(schedule)
local count = tonumber(call('HGET', P .. K.schedule .. schedule, F.made) or nil) or 1
call('DEL', P .. K.schedule .. schedule)
call('HSET', P .. K.schedule .. schedule, F.made, count, unpack(ARGV, 7))
call('HSET', schedules.own, schedule, ARGV[6])
call('HDEL', schedules.own, 'over:' .. schedule)
queue.register(ARGV[2])
if paused then
  call('ZADD', P .. K.repeat, slot, schedule)
else
  schedules.make_run(schedule, slot, count)
end
return 'done'
