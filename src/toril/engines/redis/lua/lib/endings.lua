-- include recording
-- include ending
-- What the jobs that ended in this step leave behind, in few commands. To be called after the last of them.
local function flush_endings()
  figures.flush()
  for ending, list in pairs(rows) do
    if #list > 0 then record_runs(ending, list) end
  end
  for state, keeps in pairs(kept) do
    if #keeps > 0 then trim(state, keeps) end
  end
  flush_gone()
  if #ended > 0 then call('PUBLISH', P .. K.ended, table.concat(ended, '\n')) end
  for i = 1, #letting do let_go(letting[i][1], letting[i][2]) end
  rows, kept, ended, letting = {completed = {}, failed = {}, cancelled = {}}, {completed = {}, failed = {}}, {}, {}
  flush_told()
end

-- The last of the traces, as many as the job's producer wants.
local function wanted(traces, options)
  local most = as_number(options_of(options).stackTraceLimit)
  local fine, list = pcall(cjson.decode, most and traces or '')
  if not fine or type(list) ~= 'table' or #list <= most then return traces end
  local last = {}
  for i = math.max(1, #list - most + 1), #list do last[#last + 1] = list[i] end
  local text
  fine, text = pcall(cjson.encode, last)
  return #last == 0 and '[]' or fine and text or traces
end

-- A failure's fields: the text, what kind it was, and its stack trace after those of earlier attempts.
local function failure_fields(id, options, reason, kind, trace)
  if trace == '' then
    call('HDEL', P .. id, F.trace)
    return {F.reason, reason, F.kind, kind}
  end
  local before = call('HGET', P .. id, F.trace)
  local traces = '[' .. trace .. ']'
  if before and #before > 2 and #before < N.traces and before:sub(-1) == ']' then
    traces = before:sub(1, -2) .. ',' .. trace .. ']'
  end
  return {F.reason, reason, F.kind, kind, F.trace, wanted(traces, options)}
end

-- The errors of attempts before, and this one: the newest so many.
local function errors_with(id, attempt, brief)
  local before, line = call('HGET', P .. id, F.errors), '[' .. attempt .. ',' .. NOW .. ',' .. brief .. ']'
  if not before then return line end
  local _, breaks = before:gsub('\n', '')
  if breaks >= N.errors - 1 then before = before:match('\n(.*)$') end
  return before .. '\n' .. line
end

local function fail_job(id, job, cause, reason, kind, trace, shown, whole)
  if cause == 'cancelled' then
    event('failed', 'jobId', id, 'failedReason', reason, 'prev', 'active', 'cause', cause)
  else
    event('failed', 'jobId', id, 'failedReason', reason, 'prev', 'active')
  end
  end_job('failed', id, job, cause, reason, shown, whole, failure_fields(id, job.options, reason, kind, trace))
end
