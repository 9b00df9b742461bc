-- Jobs that failed for good and are not kept: moved, whole, to a paused queue of their own, where dashboards show them.
-- needs jobs parents
-- That queue is one of BullMQ's. Another program may have a queue of that name.
local dead_letters = {
  base = PREFIX .. N.dead_letters .. ':', queue_name = P:sub(#PREFIX + 1, -2), causes = {failed = true, stalled = true},
}
local ours

-- Whether that queue is ours; if not, jobs are kept where they are. It is from the first dead letter on, unless a library of
-- BullMQ's had opened it before: an empty queue of someone's looks like one that a dashboard has opened, so the user has to
-- name it. Nobody adds to ours, so it never gave out a number.
function dead_letters.can_add()
  if ours ~= nil then return ours end
  ours = call('EXISTS', dead_letters.base .. K.id) == 0
  for name, kind in pairs({[K.wait] = 'list', [K.meta] = 'hash', [K.letters] = 'zset', [K.toril] = 'hash'}) do
    local found = call('TYPE', dead_letters.base .. name).ok
    if found ~= 'none' and found ~= kind then ours = false end
  end
  if ours and not N.named_letters and call('HEXISTS', dead_letters.base .. K.toril, F.for_letters) == 0 then
    ours = call('EXISTS', dead_letters.base .. K.meta, dead_letters.base .. K.wait) == 0
  end
  return ours
end

-- A time in ISO format, as Node writes it. The server's Lua has no dates.
function dead_letters.date_of(ms)
  local days = math.floor(ms / 86400000) + 719468
  local era = math.floor(days / 146097)
  local of_era = days - era * 146097
  local years = math.floor((of_era - math.floor(of_era / 1460) + math.floor(of_era / 36524) - math.floor(of_era / 146096)) / 365)
  local of_year = of_era - (365 * years + math.floor(years / 4) - math.floor(years / 100))
  local month = math.floor((5 * of_year + 2) / 153)
  local day = of_year - math.floor((153 * month + 2) / 5) + 1
  month = month < 10 and month + 3 or month - 9
  local year, rest = years + era * 400 + (month <= 2 and 1 or 0), ms % 86400000
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%03dZ', year, month, day, math.floor(rest / 3600000),
    math.floor(rest / 60000) % 60, math.floor(rest / 1000) % 60, rest % 1000)
end

-- Whether a payload can be embedded in JSON text as it is.
function dead_letters.is_json(text)
  local lower = text:lower()
  if lower:find('nan', 1, true) or lower:find('inf', 1, true) or lower:find('0x', 1, true) then return false end
  return (pcall(cjson.decode, text))
end

-- What dashboards show as the dead letter's payload, up to the job's own, which comes last.
function dead_letters.head_of(id, job, cause, reason, kind)
  local facts = {
    '"originalQueue":' .. cjson.encode(dead_letters.queue_name), '"originalJobId":' .. cjson.encode(id),
    '"originalName":' .. cjson.encode(job.name), '"error":' .. cjson.encode(reason), '"errorType":' .. cjson.encode(kind or ''),
    '"cause":' .. cjson.encode(cause), '"attempts":' .. string.format('%.0f', job.made),
    '"stalls":' .. string.format('%.0f', job.stalls), '"worker":' .. (job.worker and cjson.encode(job.worker) or 'null'),
    '"failedAt":"' .. dead_letters.date_of(now) .. '"', '"originalData":',
  }
  return '{' .. table.concat(facts, ',')
end

-- `fields` of the failure are written with it; `reason` is what is shown of it; `from` is where it lies, if not in its place.
function dead_letters.add(id, job, cause, reason, fields, from)
  local key, dead, letter = from or P .. id, parents.dead_letter_key(PREFIX .. dead_letters.queue_name .. ':' .. id)
  if key ~= dead and call('EXISTS', dead) == 1 then dead_letters.delete_details(dead) end  -- an older dead letter had the same id
  call('HSET', key, F.attempts_made, job.made, F.stalls, job.stalls, F.finished_at, NOW, unpack(fields))
  local f = call('HMGET', key, F.data, F.kind)
  local data, head = f[1] or '', dead_letters.head_of(id, job, cause, reason, f[2])
  local whole = dead_letters.is_json(data)
  call('HSET', key, F.data, head .. (whole and data or cjson.encode(data)) .. '}', F.letter_queue, dead_letters.queue_name,
    F.letter_job, id, F.letter_cause, cause, F.letter_head, whole and #head or -1)
  if not whole then call('HSET', key, F.letter_data, data) end
  call('HDEL', key, F.cancelling, F.deferred, F.expires, F.rest, F.awaits)
  call('RENAME', key, dead)
  if key ~= dead and call('EXISTS', key .. K.logs) == 1 then call('RENAME', key .. K.logs, dead .. K.logs) end
  if job.parked then parents.move_children(key, dead) end
  call('HSET', dead_letters.base .. K.meta, F.is_paused, 1)
  call('HSET', dead_letters.base .. K.toril, F.for_letters, 1)
  if call('ZADD', dead_letters.base .. K.letters, NOW, letter) == 1 then call('LPUSH', dead_letters.base .. K.wait, letter) end
end

-- Other data of a dead letter: its log, and what it knows of its children.
function dead_letters.delete_details(key)
  call('DEL', key .. K.logs, key .. K.processed, key .. K.child_failures, key .. K.dependencies, key .. K.unsuccessful)
end

-- Extract the job's own payload from the dead letter's.
function dead_letters.own_data(data, head, kept)
  if kept then return kept end
  head = tonumber(head or nil)
  return head and head > 0 and data:sub(head + 1, -2) or data
end

-- A dead letter as readers see it; false if there is none.
function dead_letters.row(letter, when)
  local f = when and redis.pcall('HMGET', P .. letter, F.data, F.letter_head, F.letter_data, F.letter_queue, F.letter_job,
    F.letter_cause, F.record_fields)
  if not f or f.err or not f[4] then return false end
  local row = {letter, when, dead_letters.own_data(f[1] or '', f[2], f[3]), f[4], f[5], f[6]}
  for i = 7, 6 + N.record do row[i] = f[i] end
  return row
end

-- Move our jobs that failed on another library's worker, which keeps them as their options say.
-- What it writes goes by its machine's clock, so a stretch behind the last one seen is looked at again.
function dead_letters.collect(limit)
  local from = tonumber(call('HGET', P .. K.toril, F.collected) or nil) or 0
  local found, moved = call('ZRANGEBYSCORE', P .. K.failed, from - N.skew, '+inf', 'WITHSCORES', 'LIMIT', 0, limit), 0
  for i = 1, #found, 2 do
    local id = found[i]
    local f = call('HMGET', P .. id, F.name, F.opts, F.reason, F.attempts_made, F.attempts_made_old, F.stalls, F.worker, F.parked)
    if f[1] and jobs.options(f[2]).removeOnFail == -1 and dead_letters.can_add() then
      local reason = f[3] or ''
      local job = {name = f[1], made = context.number(f[4] or f[5]) or 0, stalls = context.number(f[6]) or 0, worker = f[7], parked = f[8]}
      call('ZREM', P .. K.failed, id)
      dead_letters.add(id, job, reason:find('stalled more than', 1, true) and 'stalled' or 'failed', reason:sub(1, 1024), {})
      jobs.delete(id)
      moved = moved + 1
    end
    from = math.max(from, tonumber(found[i + 1]))
  end
  if #found > 0 then call('HSET', P .. K.toril, F.collected, string.format('%.0f', from)) end
  return moved
end

-- Delete dead letters, and return how many.
function dead_letters.drop(letters)
  for i = 1, #letters do
    call('ZREM', dead_letters.base .. K.letters, letters[i])
    call('LREM', dead_letters.base .. K.wait, -1, letters[i])
    call('DEL', dead_letters.base .. letters[i])
    dead_letters.delete_details(dead_letters.base .. letters[i])
  end
  return #letters
end

-- Delete dead letters whose retention is over.
function dead_letters.prune(limit)
  local count, age = (call('HGET', dead_letters.base .. K.toril, F.keep_letters) or ''):match('^(%-?%d+) (%-?%d+)$')
  count, age = tonumber(count), tonumber(age)
  local set, dropped = dead_letters.base .. K.letters, 0
  if age and age >= 0 then
    local old = '(' .. string.format('%.0f', now - age)
    dropped = dead_letters.drop(call('ZRANGEBYSCORE', set, '-inf', old, 'LIMIT', 0, limit))
  end
  local over = count and count >= 0 and call('ZCARD', set) - count or 0
  if over > 0 then dropped = dropped + dead_letters.drop(call('ZRANGE', set, 0, math.min(over, limit) - 1)) end
  return dropped
end
