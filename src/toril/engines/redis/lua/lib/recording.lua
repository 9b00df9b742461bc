-- include jobs
-- include slicing
-- What is counted of jobs beside BullMQ's figures: gathered in a step, then added to the minute under way. Nothing depends
-- on it, so a key of a wrong type stops nobody.
do
  local floor, log = math.floor, math.log
  local SCALE = 8 / math.log(2)  -- buckets an octave, as in `policy.histogram`
  local try = redis.pcall
  local recorded, waits, runs, failures, happened = false, {}, {}, {}, {}

  local function bucket_of(ms)
    if ms < 1 then return 0 end
    local bucket = floor(log(ms) * SCALE)
    return bucket < N.buckets and bucket + 1 or N.buckets + 1
  end

  -- One attempt came back. How long a job waited is known of its first start; a parent waited for its children.
  function figures.attempt(job, kind)
    local started = tonumber(job.started)
    if not started then return end
    recorded = true
    if job.starts == '1' and not job.parked then
      local ready = job.ready or (tonumber(job.added) or started) + (tonumber(options_of(job.options).delay) or 0)
      local bucket = bucket_of(started - ready)
      waits[bucket] = (waits[bucket] or 0) + 1
    end
    if kind ~= 's' and kind ~= 'l' and kind ~= 'p' then
      local bucket = bucket_of(now - started)
      runs[bucket] = (runs[bucket] or 0) + 1
    end
  end

  -- `field` is one of `F.retried`, `F.taken_back`, `F.run_out`.
  function figures.one(field)
    recorded, happened[field] = true, (happened[field] or 0) + 1
  end

  function figures.failure(name)
    recorded, failures[name or ''] = true, (failures[name or ''] or 0) + 1
  end

  function figures.flush()
    if not recorded then return end
    local key = P .. K.figures
    figures.begin_minute(key)
    for bucket, count in pairs(waits) do try('HINCRBY', key, F.waits .. bucket, count) end
    for bucket, count in pairs(runs) do try('HINCRBY', key, F.runs .. bucket, count) end
    for field, count in pairs(happened) do try('HINCRBY', key, field, count) end
    for name, count in pairs(failures) do figures.count_failures(key, name, count, N.names) end
    recorded, waits, runs, failures, happened = false, {}, {}, {}, {}
  end
end
