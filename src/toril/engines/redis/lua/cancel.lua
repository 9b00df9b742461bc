-- Cancel jobs that have not ended. A running one is asked to stop, and its worker told that someone asked.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; reason; ids
-- Returns ids done, ids asked, {id, state} of those refused
-- Events  failed
-- uses places finish job_control workers
local reason = ARGV[4]
return job_control.each_job(5, function(id, state)
  if state == 'completed' or state == 'failed' then return '' end
  local f = call('HMGET', P .. id, F.name, F.added_at, F.started_at, F.attempts_made, F.stalls, F.worker, F.opts, F.parent, F.parked)
  if state == 'active' then
    call('HSET', P .. id, F.cancelling, reason)
    workers.notify(f[6] or '')
    return 'asked'
  end
  places.leave(id, state)
  local job = {name = f[1], added = f[2], started = f[3], made = context.number(f[4]) or 0, stalls = context.number(f[5]) or 0, worker = f[6],
    options = f[7], parent = f[8], parked = f[9]}
  finish.fail(id, job, 'cancelled', reason, 'JobCancelled', '', reason:sub(1, 1024), #reason <= 1024)
  return 'done'
end, finish.flush)
