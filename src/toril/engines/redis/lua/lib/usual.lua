-- include jobs
-- include active
-- include recording
-- include keeping
-- include handing
-- include bare
-- The usual exchange: jobs that have completed and are not kept, of a queue without groups, limits, priorities and
-- suspects, whose next jobs can start. It does what all the parts after it would do, which a script has to define before
-- it can call them: for a few jobs that takes longer than the work. Whatever it is not sure of it leaves to them, unchanged.
figures.minute, figures.completed = own[9], tonumber(own[10])
do
-- include looks

local function end_all(jobs, ids, running)
  local runs = {}
  leave_active(ids, running)
  bare.note()
  call('ZREM', P .. K.deadlines, unpack(ids))
  for i = 1, count do
    local at = first + (i - 1) * 7
    local text, shown = ARGV[at + 3], ARGV[at + 4]
    call('XADD', EVENTS, '*', 'event', 'completed', 'jobId', ids[i], 'returnvalue', text, 'prev', 'active')
    runs[i] = run_of(ids[i], jobs[i], 'completed', shown == '=' and text or shown:sub(2), shown == '=', jobs[i].subject)
    figures.attempt(jobs[i], 'c')
    forget(ids[i], jobs[i].bare)
  end
  figures.flush()
  record_runs('completed', runs)
  flush_gone()
  call('PUBLISH', P .. K.ended, table.concat(ids, '\n'))
end

local function usually()
  if ARGV[8] ~= '' or ARGV[11] ~= '' or meta[1] or meta[2] or meta[3] or own[5] or (tonumber(own[4] or nil) or 0) > now then return end
  local due = call('ZRANGE', P .. K.delayed, '0', '0', 'WITHSCORES')[2]
  due = due and math.floor(due / N.ties)
  if (due and due <= now) or call('EXISTS', P .. K.prioritized, P .. K.suspects, P .. K.stalled) > 0 then return end
  local ending, ids, seen = usual_endings()
  if not ending then return end
  local next_ones, more = usual_next(seen)
  if not next_ones then return end
  if not fits('XLEN', K.events) or ((count == 0 or slack == 0) and not fits('ZCARD', K.deadlines))
    or (count > 0 and not (fits('LLEN', K.runs_completed) and fits('HLEN', K.metrics_completed))) then return end
  local running, marked = call('LLEN', P .. K.active), redis.pcall('ZSCORE', P .. K.marker, '0')
  if type(marked) == 'table' then return end
  if count > 0 then end_all(ending, ids, running) else call('DEL', P .. K.lock) end
  if #next_ones > 0 then call('RPOP', P .. K.wait, string.format('%d', #next_ones)) end
  for i = 1, #next_ones do hand_out(unpack(next_ones[i], 1, 4)) end
  note_taken()
  if count > 0 and #taken == 0 then
    if not more and running == count and not due then event('drained') end
    trim_events(meta[5])
  end
  if more and not marked then call('ZADD', P .. K.marker, '0', '0') end
  if marked and not more then call('ZREM', P .. K.marker, '0') end
  local verdicts, wake_at = {}, #taken < want and due or false
  for i = 1, count do verdicts[i] = 0 end
  remember({verdicts, taken_ids, now, wake_at, false, 0, {}})
  return {verdicts, taken, now, wake_at, false, 0, {}}
end

local answer = usually()
if answer then return answer end
end
