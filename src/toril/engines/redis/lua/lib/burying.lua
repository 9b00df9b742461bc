-- include kinship
-- include dead_letters
-- Jobs that failed for good and are not kept: moved, whole, to a paused queue of their own, where dashboards show them.
local QUEUE, MOURNED, bury = P:sub(#PREFIX + 1, -2), {failed = true, stalled = true}, nil

do
-- A time as people and Node write it. The server's Lua knows no dates.
local function date_of(ms)
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

-- Whether a payload may stand within another text of JSON as it is.
local function is_json(text)
  local lower = text:lower()
  if lower:find('nan', 1, true) or lower:find('inf', 1, true) or lower:find('0x', 1, true) then return false end
  return (pcall(cjson.decode, text))
end

-- What dashboards show as the letter's payload, up to the job's own, which comes last.
local function head_of(id, job, cause, reason, kind)
  local facts = {
    '"originalQueue":' .. cjson.encode(QUEUE), '"originalJobId":' .. cjson.encode(id),
    '"originalName":' .. cjson.encode(job.name), '"error":' .. cjson.encode(reason), '"errorType":' .. cjson.encode(kind or ''),
    '"cause":' .. cjson.encode(cause), '"attempts":' .. string.format('%.0f', job.made),
    '"stalls":' .. string.format('%.0f', job.stalls), '"worker":' .. (job.worker and cjson.encode(job.worker) or 'null'),
    '"failedAt":"' .. date_of(now) .. '"', '"originalData":',
  }
  return '{' .. table.concat(facts, ',')
end

-- `fields` of the failure are written with it; `reason` is what is shown of it; `from` is where it lies, if not in its place.
function bury(id, job, cause, reason, fields, from)
  local key, dead, letter = from or P .. id, letter_key(PREFIX .. QUEUE .. ':' .. id)
  if key ~= dead and call('EXISTS', dead) == 1 then drop_belongings(dead) end  -- an older job had the same id
  call('HSET', key, F.attempts_made, job.made, F.stalls, job.stalls, F.finished_at, NOW, unpack(fields))
  local f = call('HMGET', key, F.data, F.kind)
  local data, head = f[1] or '', head_of(id, job, cause, reason, f[2])
  local whole = is_json(data)
  call('HSET', key, F.data, head .. (whole and data or cjson.encode(data)) .. '}', F.letter_queue, QUEUE, F.letter_job, id,
    F.letter_cause, cause, F.letter_head, whole and #head or -1)
  if not whole then call('HSET', key, F.letter_data, data) end
  call('HDEL', key, F.cancelling, F.deferred, F.expires)
  call('RENAME', key, dead)
  if key ~= dead and call('EXISTS', key .. K.logs) == 1 then call('RENAME', key .. K.logs, dead .. K.logs) end
  if job.parked then move_kin(key, dead) end
  call('HSET', D .. K.meta, F.is_paused, 1)
  call('HSET', D .. K.toril, F.for_letters, 1)
  if call('ZADD', D .. K.letters, NOW, letter) == 1 then call('LPUSH', D .. K.wait, letter) end
end
end
