-- Remove jobs that do not run.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; ids
-- Returns ids done, none asked, {id, state} of those refused
-- Events  removed
-- uses events jobs places parents signals dedup job_control
return job_control.each_job(4, function(id, state)
  if state == 'active' then return '' end
  places.leave(id, state)
  signals.leave(id)
  dedup.disown(id)
  jobs.delete(id)
  events.add('removed', 'jobId', id, 'prev', state == 'waiting' and 'wait' or state:gsub('_', '-'))
  return 'done'
end, function()
  jobs.flush_deleted()
  parents.flush()
end)
