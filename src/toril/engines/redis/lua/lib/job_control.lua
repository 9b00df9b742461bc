-- What retry, promote, cancel, remove and update have in common: which jobs are changed, and what is left to do after.
-- needs calls events places finish
local job_control = {}

-- Change the jobs of ARGV from `first` on. `act` says `done` or `asked`, or nothing of a job whose state does not allow it;
-- `flush` does what is left to do after jobs have ended or are removed.
function job_control.each_job(first, act, flush)
  local before = calls.recall()
  if before then return before end
  local mistake = context.wrong('list', K.wait, K.active) or context.wrong('stream', K.events)
    or context.wrong('zset', K.prioritized, K.delayed, K.waiting_children, K.completed, K.marker, K.suspects)
    or context.wrong('hash', K.meta, K.toril) or context.wrong('string', K.pc) or finish.wrong('failed', true)
  if mistake then return mistake end
  local lists, refused = {done = {}, asked = {}}, {}
  for i = first, #ARGV do
    local id, state = ARGV[i], places.state(ARGV[i])
    local list = state and lists[act(id, state)]
    if list then list[#list + 1] = id else refused[#refused + 1] = {id, state or false} end
  end
  if #lists.done > 0 and flush then flush() end
  return job_control.answer(lists.done, lists.asked, refused)
end

-- The answer, after idle workers were notified of the change.
function job_control.answer(done, asked, refused)
  if #done > 0 then
    events.trim(call('HGET', P .. K.meta, F.max_events))
    places.mark_ready()
    places.mark_due()
  end
  calls.remember({done, asked, refused})
  return {done, asked, refused}
end
