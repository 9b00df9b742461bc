-- include jobs
-- include noted
-- include slicing
-- What is counted of jobs beside BullMQ's figures: gathered in a step, then added to the minute under way. Nothing depends
-- on it, so a key of a wrong type stops nobody.
do
  local log, floor, char, try = math.log, math.floor, string.char, redis.pcall
  local SCALE = 8 / math.log(2)  -- buckets an octave, as in `policy.histogram`
  local start, started
  local notes, noted_size, failures, happened, other = {}, 0, {}, {}, false

  function figures.one(field)
    other, happened[field] = true, (happened[field] or 0) + 1
  end

  -- Delays from elsewhere may be fractions, or no time at all. The buckets of times of a month and more, which no byte
  -- has, are counted at once.
  local function bucket_of(ms, field)
    if not (ms >= 1) then return 0 end
    local bucket = log(ms) * SCALE + 1
    if bucket < N.unknown then return bucket - bucket % 1 end
    figures.one(field .. floor(math.min(bucket, N.buckets + 1)))
    return N.unknown
  end

  -- One attempt came back. How long a job waited is known of its first start; a parent waited for its children.
  function figures.attempt(job, kind)
    if job.started ~= start then  -- those of one claim share it
      start, started = job.started, as_number(job.started)
    end
    if not started then return end
    local wait, run, size = N.unknown, N.unknown, noted_size
    if job.starts == '1' and not job.parked then
      local ready = as_number(job.ready or job.added) or started
      local delay = not job.ready and options_of(job.options).delay
      if delay then ready = ready + (as_number(delay) or 0) end
      wait = bucket_of(started - ready, F.waits)
    end
    if kind ~= 's' and kind ~= 'l' and kind ~= 'p' then
      run = bucket_of(now - started, F.runs)
    end
    notes[size + 1], notes[size + 2], noted_size = wait, run, size + 2
  end

  function figures.failure(name)
    other, failures[name or ''] = true, (failures[name or ''] or 0) + 1
  end

  -- Where the clock went back a little, the minute under way goes on; where it was far ahead, it is the minute of now.
  -- `figures.minute` is what the script knows of it.
  local function begin_minute()
    local minute = floor(now / 60000)
    local last = tonumber(figures.minute or try('HGET', P .. K.figures, F.minute))
    figures.minute = minute
    if last and last >= minute and last <= minute + N.leap then return end
    if last and last < minute then figures.book().put_by(last) end
    try('HSET', P .. K.figures, F.minute, minute)
    try('HSET', P .. K.toril, F.figures_minute, minute)
  end

  function figures.flush()
    if noted_size == 0 and not other then return end
    begin_minute()
    local size = noted_size > 0 and try('APPEND', P .. K.figures_noted, char(unpack(notes, 1, noted_size)))
    if type(size) == 'number' and size >= N.noted then figures.book().post() end
    if other then
      local key = P .. K.figures
      for field, count in pairs(happened) do try('HINCRBY', key, field, count) end
      for name, count in pairs(failures) do figures.book().count_failures(key, name, count, N.names) end
      other, failures, happened = false, {}, {}
    end
    noted_size = 0  -- the table is filled anew from its beginning
  end
end
