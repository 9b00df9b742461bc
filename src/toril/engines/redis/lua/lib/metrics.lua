-- Run records, and what is counted of attempts and jobs: by the minute, in slices, in all.
-- needs jobs
local metrics = {minute = false, completed_minute = false}
local log, floor, char = math.log, math.floor, string.char
local SCALE = 8 / math.log(2)  -- buckets an octave, as in `policy.metrics`
local last_start, last_started
local attempts, attempts_size, failures, happened, counted_some = {}, 0, {}, {}, false

-- A record, whose number is given when it is written. `job` has name, added, started, made, stalls, worker, parent, parked.
-- Of a job of a flow it has the parent last; nothing for the job at the top.
function metrics.run_record(id, job, cause, shown, whole, subject)
  local run = {0, id, job.name, cause, job.added or 0, job.started, now, job.made, job.stalls, job.worker, shown, whole,
    type(subject) == 'string' and subject or nil}
  local flow = job.parent or (job.parked and '')
  if flow then run[13], run[14] = run[13] or false, flow end
  return run
end

-- Run records of jobs that ended alike, and BullMQ's own counts of them.
function metrics.record_runs(ending, list)
  local count, packed, runs, last, key = #list, {}, P .. K.runs_completed, F.runs_completed, P .. K.metrics_completed
  if ending == 'failed' then
    runs, last, key = P .. K.runs_failed, F.runs_failed, P .. K.metrics_failed
  elseif ending == 'cancelled' then
    runs, last, key = P .. K.runs_cancelled, F.runs_cancelled, nil  -- BullMQ does not count these
  end
  local number = call('HINCRBY', P .. K.toril, last, string.format('%d', count)) - count
  for i = math.max(1, count - N.runs + 1), count do
    list[i][1] = number + i
    packed[#packed + 1] = cmsgpack.pack(list[i])
  end
  call('LPUSH', runs, unpack(packed))
  if math.floor(number / 100) ~= math.floor((number + count) / 100) then
    call('LTRIM', runs, 0, N.runs - 1)  -- readers look no further anyway
  end
  if key then metrics.count_minute(key, count, ending == 'completed') end
end

-- BullMQ's counts: `count` in all; `prevTS` lies in the minute under way, `prevCount` is the count when that began; the
-- list has the minutes before, newest first. Of completed jobs it is noted in which minute that was looked at last. Nothing
-- depends on them, so a count that is no number stops nobody.
function metrics.count_minute(key, count, noting)
  local total, minute = try('HINCRBY', key, F.count, string.format('%d', count)), math.floor(now / 60000)
  if type(total) ~= 'number' then return end
  if noting and metrics.completed_minute == minute and total > count then return end
  if noting then call('HSET', P .. K.toril, F.completed_minute, minute) end
  local before = call('HMGET', key, F.prev_ts, F.prev_count)
  local last = tonumber(before[1])
  if not last then
    call('HSET', key, F.prev_ts, now, F.prev_count, 0)
    return
  end
  local passed = math.min(minute - math.floor(last / 60000), N.minutes)
  if passed < -N.leap then call('HSET', key, F.prev_ts, now) end  -- a clock was wrong for a while
  if passed <= 0 then return end
  local data = key .. K.metrics_data
  call('LPUSH', data, total - count - (tonumber(before[2]) or 0))
  local zeros = {}
  for i = 1, math.min(passed - 1, 1000) do zeros[i] = 0 end
  for first = 1, passed - 1, 1000 do
    call('LPUSH', data, unpack(zeros, 1, math.min(1000, passed - first)))
  end
  call('LTRIM', data, 0, N.minutes - 1)
  call('HSET', key, F.prev_ts, now, F.prev_count, total - count)
end

-- What is counted beside BullMQ's numbers is gathered in a step, and added to the minute under way by `flush`. Nothing
-- depends on it, so a key of a wrong type stops nobody.
function metrics.count(field, more)
  counted_some, happened[field] = true, (happened[field] or 0) + (more or 1)
end

-- Delays from elsewhere may be fractions, or no time at all. The buckets of times of a month and more, which no byte
-- has, are counted at once.
function metrics.bucket(ms, field)
  if not (ms >= 1) then return 0 end
  local bucket = log(ms) * SCALE + 1
  if bucket < N.unknown then return bucket - bucket % 1 end
  metrics.count(field .. floor(math.min(bucket, N.buckets + 1)))
  return N.unknown
end

-- One attempt came back. How long a job waited is known only of its first start; a parent waited for its children.
function metrics.count_attempt(job, kind)
  if job.started ~= last_start then  -- those of one claim share it
    last_start, last_started = job.started, context.number(job.started)
  end
  local started = last_started
  if not started then return end
  local wait, run, size = N.unknown, N.unknown, attempts_size
  if job.starts == '1' and not job.parked then
    local ready = context.number(job.ready or job.added) or started
    local delay = not job.ready and jobs.options(job.options).delay
    if delay then ready = ready + (context.number(delay) or 0) end
    wait = metrics.bucket(started - ready, F.waits)
  end
  if kind ~= 's' and kind ~= 'l' and kind ~= 'w' then
    run = metrics.bucket(now - started, F.runs)
  end
  attempts[size + 1], attempts[size + 2], attempts_size = wait, run, size + 2
end

function metrics.count_failure(name)
  counted_some, failures[name or ''] = true, (failures[name or ''] or 0) + 1
end

-- Where the clock went back a little, the minute under way goes on; where it was far ahead, it is the minute of now.
-- `metrics.minute` is what the script knows of it.
function metrics.begin_minute()
  local minute = floor(now / 60000)
  local last = tonumber(metrics.minute or try('HGET', P .. K.figures, F.minute))
  metrics.minute = minute
  if last and last >= minute and last <= minute + N.leap then return end
  if last and last < minute then metrics.slices().close_minute(last) end
  try('HSET', P .. K.figures, F.minute, minute)
  try('HSET', P .. K.toril, F.figures_minute, minute)
end

function metrics.flush()
  if attempts_size == 0 and not counted_some then return end
  metrics.begin_minute()
  local size = attempts_size > 0 and try('APPEND', P .. K.figures_noted, char(unpack(attempts, 1, attempts_size)))
  if type(size) == 'number' and size >= N.noted then metrics.slices().count_attempts() end
  if counted_some then
    local key = P .. K.figures
    for field, count in pairs(happened) do try('HINCRBY', key, field, count) end
    for name, count in pairs(failures) do metrics.slices().count_failures(key, name, count, N.names) end
    counted_some, failures, happened = false, {}, {}
  end
  attempts_size = 0  -- the table is filled anew from its beginning
end

-- Minutes that are over are added to slices of 1, 3, 6 and 42 minutes, of which the last so many are kept, and to the sum of
-- all. Each is fields and numbers: F.waits and F.runs with a bucket behind it, F.of_name with a name, and others. What only
-- some steps need is defined by them alone.
function metrics.slices()
  local slices = {}
  local STEPS = {1, 3, 6, 42}

  -- Failures of so many names are told apart, the rest are F.of_others.
  function slices.count_failures(key, name, count, most)
    local field = F.of_name .. name
    if #name > N.name or try('HEXISTS', key, field) ~= 1 then
      local names = #name <= N.name and tonumber(try('HGET', key, F.names)) or 0
      if #name > N.name or names >= most then
        field = F.of_others
      else
        try('HSET', key, F.names, names + 1)
      end
    end
    try('HINCRBY', key, field, count)
  end

  -- Attempts of the minute under way, two bytes each: the buckets of the time that the job waited and of the one that it ran,
  -- or N.unknown. A step that settles one job so writes once, and what it writes is counted with many others.
  function slices.unread_attempts()
    local text, waits, runs, counts = try('GET', P .. K.figures_noted), {}, {}, {}
    if type(text) ~= 'string' then return counts end
    for from = 1, #text, 1000 do
      local bytes = {text:byte(from, from + 999)}
      for i = 2, #bytes, 2 do
        local wait, run = bytes[i - 1], bytes[i]
        waits[wait], runs[run] = (waits[wait] or 0) + 1, (runs[run] or 0) + 1
      end
    end
    waits[N.unknown], runs[N.unknown] = nil, nil
    for bucket, count in pairs(waits) do counts[string.format(F.waits .. '%d', bucket)] = count end
    for bucket, count in pairs(runs) do counts[string.format(F.runs .. '%d', bucket)] = count end
    return counts
  end

  -- What was only noted is counted.
  function slices.count_attempts()
    for field, count in pairs(slices.unread_attempts()) do try('HINCRBY', P .. K.figures, field, string.format('%d', count)) end
    try('DEL', P .. K.figures_noted)
  end

  -- The slice with a minute's fields added; `before` is what its place held, maybe of a slice long ago.
  local function added(before, slice, fields)
    local fine, sum = pcall(cjson.decode, before)
    if not fine or type(sum) ~= 'table' or sum[F.minute] ~= slice then sum = {[F.minute] = slice, [F.names] = 0} end
    for field, count in pairs(fields) do
      if field:sub(1, 1) == F.of_name and not sum[field] then
        if sum[F.names] >= N.names then field = F.of_others else sum[F.names] = sum[F.names] + 1 end
      end
      sum[field] = (sum[field] or 0) + count
    end
    return cjson.encode(sum)
  end

  -- Add what was counted to a slice, or where that has no length to the sum of all.
  function slices.add(step, slice, fields)
    if step > 0 then
      local place = step .. ':' .. slice % N.slices
      local before = try('HGET', P .. K.figures_past, place)
      return try('HSET', P .. K.figures_past, place, added(type(before) == 'string' and before or '', slice, fields))
    end
    for field, count in pairs(fields) do
      if field:sub(1, 1) == F.of_name then
        slices.count_failures(P .. K.figures_all, field:sub(2), count, N.all_names)
      else
        try('HINCRBY', P .. K.figures_all, field, count)
      end
    end
  end

  function slices.close_minute(minute)
    slices.count_attempts()
    local flat, fields = try('HGETALL', P .. K.figures), {}
    for i = 1, #flat, 2 do fields[flat[i]] = tonumber(flat[i + 1]) end
    fields[F.minute], fields[F.names] = nil, nil
    call('DEL', P .. K.figures)
    for _, step in ipairs(STEPS) do slices.add(step, math.floor(minute / step), fields) end
    slices.add(0, 0, fields)
  end

  return slices
end

-- Count, prevTS, prevCount, the minutes before prevTS's, newest first; see `count_minute`.
function metrics.minutes(name, most)
  local f = call('HMGET', P .. name, F.count, F.prev_ts, F.prev_count)
  return {f[1], f[2], f[3], call('LRANGE', P .. name .. K.metrics_data, 0, most - 1)}
end

-- BullMQ's counts of two stores, put together: see `count_minute`. What came is of minutes that this queue may know too.
function metrics.merge_minutes(key, total, came)
  if total == 0 and #came == 0 then return end
  local f, list = call('HMGET', key, F.count, F.prev_ts, F.prev_count), call('LRANGE', key .. K.metrics_data, 0, -1)
  local by_minute, newest = {}, math.floor((tonumber(f[2] or nil) or now) / 60000)
  local under_way = (tonumber(f[1] or nil) or 0) - (tonumber(f[3] or nil) or 0)
  for i = 1, #list do by_minute[newest - i] = tonumber(list[i]) end
  local oldest = newest - #list
  for i = 1, #came do
    local minute, count = came[i][1], came[i][2]
    if minute >= newest then
      under_way = under_way + count
    else
      by_minute[minute] = (by_minute[minute] or 0) + count
      oldest = math.max(math.min(oldest, minute), newest - N.minutes)
    end
  end
  local sum = (tonumber(f[1] or nil) or 0) + total
  call('DEL', key .. K.metrics_data)
  for first = newest - 1, oldest, -1000 do
    local part = {}
    for minute = first, math.max(oldest, first - 999), -1 do part[#part + 1] = by_minute[minute] or 0 end
    call('RPUSH', key .. K.metrics_data, unpack(part))
  end
  call('HSET', key, F.count, string.format('%.0f', sum), F.prev_count, string.format('%.0f', sum - under_way),
    F.prev_ts, f[2] or NOW)
end

-- Records of both by their time, the newest first; as many as are kept.
function metrics.merge_runs(name, last, came)
  if #came == 0 then return end
  local all = call('LRANGE', P .. name, 0, N.runs - 1)
  for i = 1, #all do all[i] = metrics.unpack_run(all[i]) end
  for i = 1, #came do
    local run = came[i]
    for n = 1, 14 do if run[n] == cjson.null then run[n] = false end end
    all[#all + 1] = run
  end
  for i = 1, #all do all[i].place = i end
  table.sort(all, function(a, b)
    if a[7] ~= b[7] then return a[7] > b[7] end
    return a.place < b.place
  end)
  local kept, number, packed = math.min(#all, N.runs), call('HINCRBY', P .. K.toril, last, #came), {}
  for i = 1, kept do
    all[i].place, all[i][1] = nil, number - i + 1
    packed[i] = cmsgpack.pack(all[i])
  end
  call('DEL', P .. name)
  call('RPUSH', P .. name, unpack(packed))
end

-- Since when the job waits that has waited longest, as far as a few looks tell: at the next ones in the line, and at the
-- next one of each priority. Parents are passed over, whose time began with the end of their last child.
function metrics.waits_since(id)
  local f = try('HMGET', P .. id, F.added_at, F.opts, F.started_at, F.parked, F.ready)
  if f.err or not f[1] or f[4] then return nil end
  local ready = context.number(f[5]) or (context.number(f[1]) or now) + (context.number(jobs.options(f[2]).delay) or 0)
  return math.min(now, math.max(ready, context.number(f[3]) or 0))
end

function metrics.oldest_wait()
  local ids = call('LRANGE', P .. K.wait, -N.next, -1)
  local from, since = 0, nil
  for _ = 1, N.next do
    local first = call('ZRANGEBYSCORE', P .. K.prioritized, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if not first[1] then break end
    ids[#ids + 1] = first[1]
    from = (math.floor(first[2] / N.priorities) + 1) * N.priorities
  end
  for i = 1, #ids do
    local its = metrics.waits_since(ids[i])
    if its then since = math.min(since or its, its) end
  end
  return since or false
end

-- A run record as it was packed: fourteen values, false where there is none. A move once left values out instead, and such
-- a record comes out of cmsgpack as a table with holes, at which Redis would cut the answer off.
function metrics.unpack_run(packed)
  local run = cmsgpack.unpack(packed)
  for n = 1, 14 do run[n] = run[n] or false end
  return run
end
