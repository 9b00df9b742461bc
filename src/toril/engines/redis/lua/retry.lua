-- Run jobs again that have completed or failed. A parent that failed waits for its children that have not succeeded, which
-- run again with it.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; ids
-- Returns ids done, none asked, {id, state} of those refused
-- Events  waiting, waiting-children
-- uses events places parents steps replay job_control
return job_control.each_job(4, function(id, state)
  if replay.with_parent[P .. id] then return 'done' end
  if state ~= 'completed' and state ~= 'failed' then return '' end
  places.leave(id, state)
  replay.reset(P .. id)
  steps.run_again(P .. id, state == 'completed')
  parents.rejoin(id, call('HGET', P .. id, F.parent))
  if state == 'failed' and replay.children(P .. id) then
    replay.into_line(P, id, true)
  else
    places.to_back(id, context.number(call('HGET', P .. id, F.priority), N.lowest_priority) or 0)
    events.add('waiting', 'jobId', id, 'prev', state)
  end
  return 'done'
end)
