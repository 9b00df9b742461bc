-- BullMQ's figures: `count` in all; `prevTS` lies in the minute under way, `prevCount` is the count when that began; the
-- list has the minutes before, newest first. Of completed jobs it is noted in which minute that was looked at last. Nothing
-- depends on figures, so a count that is no number stops nobody.
local function count_minute(key, count, noting)
  local total, minute = redis.pcall('HINCRBY', key, F.count, string.format('%d', count)), math.floor(now / 60000)
  if type(total) ~= 'number' then return end
  if noting and figures.completed == minute and total > count then return end
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
