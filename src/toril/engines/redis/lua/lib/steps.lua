-- Rows that a job records of its handler: which counts, how many there may be.
-- needs queue
-- A row is `KIND NUMBER AT TOOK DIGEST RERUNS.ATTEMPT TEXT`. Where the kind has a time, the text begins with it, or with `-`.
-- `toril:steps` has the last number, how many rows there are, and the bytes of their keys and texts.
local steps = {}
local TIMED = {z = true, p = true, t = true, w = true}
local REPLACED_BY = {e = 'decvtzp', t = 'decvtzp'}  -- the kinds that take the place of one
local asked_of, is_used

-- Whether jobs of the queue record steps. Of a queue where none does, nothing else is asked.
function steps.used()
  if asked_of ~= P then
    local known = P == KEYS[1] and queue.own
    asked_of, is_used = P, (known and known[12] or call('HGET', P .. K.toril, F.stepping)) == '1'
  end
  return is_used
end

function steps.start_using()
  if not steps.used() then call('HSET', P .. K.toril, F.stepping, '1') end
  is_used = true
end

-- What is counted of a job's rows, and what a new one says of its attempt.
function steps.of(id)
  local f = call('HMGET', P .. id, F.steps, F.reruns, F.attempts_made, F.attempts_made_old)
  local last, count, bytes = (f[1] or ''):match('^(%d+) (%d+) (%d+)$')
  local reruns, epoch = (f[2] or ''):match('^(%d+) (%d+)$')
  return {
    key = P .. id, last = tonumber(last) or 0, count = tonumber(count) or 0, bytes = tonumber(bytes) or 0,
    reruns = tonumber(reruns) or 0, epoch = tonumber(epoch) or 0, made = context.number(f[3] or f[4]) or 0,
  }
end

-- Write down what is counted; nothing where there never was a row. Numbers go on even if no row is left.
function steps.save(job)
  if job.last == 0 then return call('HDEL', job.key, F.steps) end
  call('HSET', job.key, F.steps, string.format('%.0f %d %d', job.last, job.count, job.bytes))
end

function steps.row(job, name) return call('HGET', job.key, F.step .. name) end

-- The kind of a row, and its time as text. What cannot be read has none.
function steps.parts(row)
  local kind, text = (row or ''):match('^(%l) %d+ %d+ %d+ [-%x]+ %d+%.%d+ (.*)$')
  return kind, kind and TIMED[kind] and text:match('^[-%d]+') or nil
end

-- The text of a row of this kind: its time is `till` or, where that is '', in `delay` ms; neither is no time.
function steps.timed(kind, text, delay, till)
  if not TIMED[kind] then return text end
  if till == '' then till = delay == '' and '-' or string.format('%.0f', now + tonumber(delay)) end
  return text == '' and till or till .. ' ' .. text
end

-- Whether a row of this kind takes the place of the one that is there. `anew`: a signal that was read did not fit.
function steps.counts(before, kind, anew)
  if not before then return true end
  local there = steps.parts(before)
  if there == 'w' then return kind == 'p' and anew end
  return there and (REPLACED_BY[there] or ''):find(kind, 1, true) ~= nil
end

-- Write a row in the place of the one that is there; its text, or nil if the job would have more of them than it may.
function steps.write(job, name, before, kind, took, digest, text)
  local row = string.format('%s %.0f %s ', kind, job.last + 1, NOW) .. took .. ' ' .. digest
    .. string.format(' %d.%d ', job.reruns, job.made) .. text
  local count, bytes = job.count, job.bytes + #row
  if before then bytes = bytes - #before else count, bytes = count + 1, bytes + #name end
  if count > N.steps or bytes > N.step_bytes then return nil end
  steps.start_using()
  call('HSET', job.key, F.step .. name, row)
  job.last, job.count, job.bytes = job.last + 1, count, bytes
  steps.save(job)
  return row
end

-- All rows: {number, key, text} each, in their order. What cannot be read comes first.
function steps.all(key)
  local flat, rows = redis.pcall('HGETALL', key), {}
  for i = 1, flat.err and 0 or #flat, 2 do
    if flat[i]:sub(1, #F.step) == F.step then
      rows[#rows + 1] = {tonumber(flat[i + 1]:match('^%l (%d+) ')) or 0, flat[i]:sub(#F.step + 1), flat[i + 1]}
    end
  end
  table.sort(rows, function(one, other) return one[1] < other[1] or (one[1] == other[1] and one[2] < other[2]) end)
  return rows
end

-- Forget a job's rows from this one on.
function steps.forget(job, rows, from)
  for i = from, #rows do
    job.count, job.bytes = job.count - 1, job.bytes - #rows[i][2] - #rows[i][3]
    call('HDEL', job.key, F.step .. rows[i][2])
  end
  if from <= #rows then steps.save(job) end
end

-- A job runs again by hand: with its rows, or `anew`. Of those then none is left; of a rewind those that the caller leaves.
function steps.run_again(key, anew, keep)
  local reruns, epoch = (call('HGET', key, F.reruns) or '0 0'):match('^(%d+) (%d+)$')
  reruns, epoch = (tonumber(reruns) or 0) + 1, (tonumber(epoch) or 0) + (anew and 1 or 0)
  call('HSET', key, F.reruns, string.format('%d %d', reruns, epoch))
  local last, count, bytes = (anew and not keep and call('HGET', key, F.steps) or ''):match('^(%d+) (%d+) (%d+)$')
  if last then
    local job = {key = key, last = tonumber(last), count = tonumber(count), bytes = tonumber(bytes)}
    steps.forget(job, steps.all(key), 1)
  end
end

-- Why a job rests, and where; nil if it does not. Other libraries move jobs on, and do not know that they rested: what
-- counts is whether one still stands where it rested.
function steps.rest_of(id)
  local text = steps.used() and call('HGET', P .. id, F.rest)
  local since, till = (text or ''):match('^{"since":(%d+),"until":(%w+),')
  if not since then return nil end
  local score = call('ZSCORE', P .. K.delayed, id)
  if score then
    local due = tonumber(till) or since + N.longest_rest
    if math.floor(score / N.ties) == due then return text, 'delayed' end
  elseif call('ZSCORE', P .. K.waiting_children, id) then
    return text, 'waiting_children'
  end
end

-- A job leaves the place where it may have rested.
function steps.stop_resting(id)
  if steps.used() and call('HDEL', P .. id, F.rest) == 1 then call('ZREM', P .. K.resting, id) end
end

-- How many of the delayed jobs rest.
function steps.delayed_rests()
  return steps.used() and call('ZCOUNT', P .. K.resting, '-inf', '(' .. string.format('%.0f', N.rest_last)) or 0
end

-- The sleeps for which a job rests, and the pauses before another try of a step, are over now.
function steps.end_times(id)
  local text = steps.rest_of(id)
  if not text then return end
  local job = steps.of(id)
  for _, reason in ipairs(cjson.decode(text)['for']) do
    local name, row = reason[1], steps.row(job, reason[1])
    local kind, till = steps.parts(row)
    if (kind == 'z' or kind == 't') and (tonumber(till) or 0) > now then
      local head, more = row:match('^(%l %d+ %d+ %d+ [-%x]+ %d+%.%d+ )%d+(.*)$')
      call('HSET', job.key, F.step .. name, head .. NOW .. more)
      job.bytes = job.bytes + #head + #NOW + #more - #row
    end
  end
  if job.count > 0 then steps.save(job) end
end
