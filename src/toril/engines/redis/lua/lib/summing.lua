-- Figures by the minute and run records of two stores, put together.
-- include runs

-- BullMQ's figures: see lib/minutes. What came is of minutes that this queue may have figures of too.
local function add_minutes(key, total, came)
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
local function add_runs(name, last, came)
  if #came == 0 then return end
  local all = call('LRANGE', P .. name, 0, N.runs - 1)
  for i = 1, #all do all[i] = unpack_run(all[i]) end
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
