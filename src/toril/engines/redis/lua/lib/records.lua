-- A job as a reader sees it: its fields, id, state, score and deadline; false if there is no such job.
local function record_of(id, state, score)
  local f = redis.pcall('HMGET', P .. id, F.record_fields)
  if f.err or not f[1] then return false end
  local n = N.record
  f[n + 1], f[n + 2], f[n + 3] = id, state, score or false
  f[n + 4] = state == 'active' and call('ZSCORE', P .. K.deadlines, id) or false
  return f
end

-- Whether a job was claimed after a walk began, whose ceiling is the last fence then: such a one may have been seen.
local function has_moved(record, ceiling)
  local fence = record[14] and tonumber(record[14]:match('^%d+'))
  return fence and fence > ceiling
end

local function size_of(fields)
  local bytes = 0
  for i = 1, N.record do bytes = bytes + (fields[i] and #fields[i] or 0) end
  return bytes
end
