-- Count, prevTS, prevCount, the minutes before prevTS's, newest first; see `minutes`.
local function minutes_of(name, most)
  local f = call('HMGET', P .. name, F.count, F.prev_ts, F.prev_count)
  return {f[1], f[2], f[3], call('LRANGE', P .. name .. K.metrics_data, 0, most - 1)}
end
