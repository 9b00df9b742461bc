-- Let delayed jobs run now.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; ids
-- Returns ids done, none asked, {id, state} of those refused
-- Events  waiting
-- uses events places steps job_control
return job_control.each_job(4, function(id, state)
  if state ~= 'delayed' then return '' end
  steps.end_times(id)
  places.leave(id, state)
  call('HSET', P .. id, F.delay, 0)
  places.to_back(id, context.number(call('HGET', P .. id, F.priority), N.lowest_priority) or 0)
  events.add('waiting', 'jobId', id, 'prev', 'delayed')
  return 'done'
end)
