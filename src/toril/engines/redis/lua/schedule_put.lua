-- Make or change a schedule, and its run in place of one that has not started.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now; the queue's name, the schedule, slot, the slot it is expected at or nothing; its settings as JSON;
--         then fields and values of the scheduler's hash
-- Returns `done`, `stale` or `taken`
-- Events  removed, added, waiting, delayed
-- include begin
-- include guard
-- include schedules
local schedule, slot, expected = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local mistake = wrong_for_schedules()
if mistake then return mistake end
local before = slot_of(schedule)
if before ~= expected then return 'stale' end
local id = run_name(schedule, slot)
-- A slot whose run has started has had its run, even if nothing of it is left.
local waits, paused = before == slot and is_waiting(id), is_flagged(schedule, 'paused')
if not waits and (call('EXISTS', P .. id) == 1 or (before == slot and not paused)) then return 'taken' end

drop_run(schedule)
local count = tonumber(call('HGET', hash_of(schedule), F.made) or nil) or 1
call('DEL', hash_of(schedule))
call('HSET', hash_of(schedule), F.made, count, unpack(ARGV, 7))
call('HSET', own_key, schedule, ARGV[6])
call('HDEL', own_key, 'over:' .. schedule)
know_queue(ARGV[2])
if paused then
  call('ZADD', P .. K.repeat, slot, schedule)
else
  make_run(schedule, slot, count)
end
return 'done'
