-- include jobs
-- Since when the job waits that has waited longest, as far as a few looks tell: at the next ones in the line, and at the
-- next one of each priority. Parents are passed over, whose time began with the end of their last child.
local function waits_since(id)
  local f = redis.pcall('HMGET', P .. id, F.added_at, F.opts, F.started_at, F.parked, F.ready)
  if f.err or not f[1] or f[4] then return nil end
  local ready = as_number(f[5]) or (as_number(f[1]) or now) + (as_number(options_of(f[2]).delay) or 0)
  return math.min(now, math.max(ready, as_number(f[3]) or 0))
end

local function oldest()
  local ids = call('LRANGE', P .. K.wait, -N.next, -1)
  local from, since = 0, nil
  for _ = 1, N.next do
    local first = call('ZRANGEBYSCORE', P .. K.prioritized, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if not first[1] then break end
    ids[#ids + 1] = first[1]
    from = (math.floor(first[2] / N.priorities) + 1) * N.priorities
  end
  for i = 1, #ids do
    local its = waits_since(ids[i])
    if its then since = math.min(since or its, its) end
  end
  return since or false
end
