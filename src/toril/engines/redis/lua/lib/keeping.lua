-- include recording
-- include minutes
-- What is kept of every job that ends: its run record, and the queue's figures.

-- A record, whose number is given when it is written. `job` has name, added, started, made, stalls, worker, parent, parked.
-- Of a job of a flow it has the parent last; nothing for the job at the top.
local function run_of(id, job, cause, shown, whole, subject)
  local run = {0, id, job.name, cause, job.added or 0, job.started, now, job.made, job.stalls, job.worker, shown, whole,
    type(subject) == 'string' and subject or nil}
  local flow = job.parent or (job.parked and '')
  if flow then run[13], run[14] = run[13] or false, flow end
  return run
end

local function record_runs(ending, list)
  local count, packed, runs, last, key = #list, {}, P .. K.runs_completed, F.runs_completed, P .. K.metrics_completed
  if ending == 'failed' then runs, last, key = P .. K.runs_failed, F.runs_failed, P .. K.metrics_failed
  elseif ending == 'cancelled' then runs, last, key = P .. K.runs_cancelled, F.runs_cancelled, nil end  -- to BullMQ these are no figures
  local number = call('HINCRBY', P .. K.toril, last, string.format('%d', count)) - count
  for i = math.max(1, count - N.runs + 1), count do
    list[i][1] = number + i
    packed[#packed + 1] = cmsgpack.pack(list[i])
  end
  call('LPUSH', runs, unpack(packed))
  if math.floor(number / 100) ~= math.floor((number + count) / 100) then
    call('LTRIM', runs, 0, N.runs - 1)  -- readers look no further anyway
  end
  if key then count_minute(key, count, ending == 'completed') end
end
