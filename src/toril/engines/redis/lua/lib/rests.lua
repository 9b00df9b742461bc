-- A running job comes to rest: its rows, whether something has come already, and where it stands then.
-- needs events line metrics steps signals
-- A rest is {key, kind, text, delay or '', digest or '-', {name, key or ''} of each signal, '1' if the row is there, key and
-- signals as JSON}; `till` is added to it: when it is over, nil if it has no time.
local rests = {}

-- Write the rows of rests. False if the job would have more than it may.
function rests.record(id, list)
  local job = steps.of(id)
  for i = 1, #list do
    local r = list[i]
    local row = steps.row(job, r[1])
    if r[7] ~= '1' and steps.counts(row, r[2]) then
      row = steps.write(job, r[1], row, r[2], '0', r[5], steps.timed(r[2], r[3], r[4], ''))
      if not row then return false end
      metrics.count(F.records)
    end
    local kind, till = steps.parts(row)
    if kind ~= r[2] then r.till = 0 else r.till = tonumber(till or nil) end  -- another row: the next run sees to it
  end
  return true
end

-- Whether one of these is over, a signal is there, or another job waits for it: then the job runs again at once.
function rests.has_come(id, list)
  for i = 1, #list do
    if list[i].till and list[i].till <= now then return true end
  end
  for i = 1, #list do
    if #list[i][6] > 0 and (not signals.await(id, list[i][6]) or signals.oldest(id, list[i][6])) then return true end
  end
  return false
end

function rests.waits_for_children(list)
  for i = 1, #list do
    if list[i][2] == 'c' then return true end
  end
  return #list == 0
end

-- Put a job where it rests. When it is due, if it has a time.
function rests.begin(id, list)
  local first, children_only, reasons = nil, true, {}
  for i = 1, #list do
    local r = list[i]
    local till = r.till and string.format('%.0f', r.till)
    if r.till and (not first or r.till < first) then first = r.till end
    children_only = children_only and r[2] == 'c'
    reasons[i] = '[' .. r[8] .. ',"' .. r[2] .. '",' .. (till or 'null') .. ',' .. r[9] .. ']'
  end
  local due = first or now + N.longest_rest
  steps.start_using()
  metrics.count(F.rests)
  call('HSET', P .. id, F.rest, '{"since":' .. NOW .. ',"until":' .. (first and string.format('%.0f', first) or 'null')
    .. ',"children":' .. tostring(rests.waits_for_children(list)) .. ',"for":[' .. table.concat(reasons, ',') .. ']}')
  call('ZADD', P .. K.resting, string.format('%.0f', children_only and N.rest_last or due), id)
  if children_only then
    call('ZADD', P .. K.waiting_children, NOW, id)
    events.add('waiting-children', 'jobId', id, 'prev', 'active')
    return nil
  end
  line.delay(id, due)
  events.add('delayed', 'jobId', id, 'delay', string.format('%.0f', due))
  return due
end
