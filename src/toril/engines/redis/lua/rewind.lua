-- Forget a row of a job and all that were recorded after it, or all rows, and run the job again.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; the job, the row's key or nothing
-- Returns ids done, none asked, {id, state} of those refused; nothing if there is no such row
-- Events  waiting, waiting-children
-- uses calls events places parents steps signals replay job_control
local before = calls.recall()
if before then return before end
local mistake = context.wrong('list', K.wait, K.active) or context.wrong('stream', K.events)
  or context.wrong('zset', K.prioritized, K.delayed, K.waiting_children, K.completed, K.failed, K.marker, K.suspects,
    K.resting)
  or context.wrong('hash', K.meta, K.toril, K.awaited) or context.wrong('string', K.pc)
if mistake then return mistake end
local id, name = ARGV[4], ARGV[5]
local key, state = P .. id, places.state(id)
local held_back = state == 'waiting_children' and call('SISMEMBER', key .. K.dependencies, key .. K.hold) == 1
if not state or state == 'active' or held_back then return job_control.answer({}, {}, {{id, state or false}}) end

local rows, from = steps.all(key), name == '' and 1 or nil
for i = 1, #rows do
  if rows[i][2] == name then from = i end
end
if not from then return false end

local ended = state == 'completed' or state == 'failed'
local waits = state == 'waiting_children' and call('HEXISTS', key, F.rest) == 0 -- of a flow: it has not run yet
places.leave(id, state)
signals.leave(id)
steps.forget(steps.of(id), rows, from)
steps.run_again(key, true, true)
replay.reset(key)
if ended then parents.rejoin(id, call('HGET', key, F.parent)) end
if waits then
  call('ZADD', P .. K.waiting_children, NOW, id)
  events.add('waiting-children', 'jobId', id, 'prev', 'waiting-children')
elseif state == 'failed' and replay.children(key) then
  replay.into_line(P, id, true)
else
  places.to_back(id, context.number(call('HGET', key, F.priority), N.lowest_priority) or 0)
  events.add('waiting', 'jobId', id, 'prev', state == 'waiting_children' and 'waiting-children' or state)
end
return job_control.answer({id}, {}, {})
