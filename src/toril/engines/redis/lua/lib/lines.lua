-- include claim
-- include rate
-- From where a claim takes, and what keeps it from more: ARGV[4] want, [8] alone, [10] priorities first.
local function suspects_left() return call('ZCARD', P .. K.suspects) end

-- A suspect that stands in no line any more was taken by another library's worker, or is gone.
local function pop_suspect()
  while true do
    local first = call('ZPOPMIN', P .. K.suspects)
    if not first[1] then return {} end
    if call('LREM', P .. K.wait, -1, first[1]) > 0 then return {first[1]} end
  end
end

-- The next in the line, past those who must run alone; they stay at the front.
local function pop_waiting(size)
  if suspects_left() == 0 then return call('RPOP', P .. K.wait, size) or {} end
  local found, passed = {}, {}
  while #found < size and #passed < N.passed do
    local ids = call('RPOP', P .. K.wait, size - #found) or {}
    if #ids == 0 then break end
    local marks = call('ZMSCORE', P .. K.suspects, unpack(ids))
    for i = 1, #ids do
      local list = marks[i] and passed or found
      list[#list + 1] = ids[i]
    end
  end
  for i = #passed, 1, -1 do call('RPUSH', P .. K.wait, passed[i]) end
  return found
end

local function pop_prioritized(size)
  local found, ids = call('ZPOPMIN', P .. K.prioritized, size), {}
  for i = 1, #found, 2 do ids[#ids + 1] = found[i] end
  if #ids == 0 then call('DEL', P .. K.pc) end
  return ids
end

local function take_some(size)
  if ARGV[8] == '1' and size > 0 then
    take(pop_suspect, 1, 1)
    if #taken > 0 then return end
  end
  local lines = ARGV[10] == '1' and {pop_prioritized, pop_waiting} or {pop_waiting, pop_prioritized}
  for _, pop in ipairs(lines) do
    if #taken < size then take(pop, size - #taken, 0) end
  end
end

-- How many the gates let through, which is the narrowest, and when it opens.
local function gates(want)
  local meta = call('HMGET', P .. K.meta, F.is_paused, F.concurrency, F.rate_max, F.rate_ms)
  if meta[1] then return 0, 'paused' end
  local size, gate, opens = want, nil, nil
  local most = tonumber(meta[2] or nil)
  if most then
    local free = math.max(0, most - call('LLEN', P .. K.active))
    if free < size then size, gate = free, 'concurrency' end
  end
  local left, at = rate_left(meta)
  if left < size then size, gate, opens = left, 'rate', at end
  return size, gate, opens
end

-- When a claim that brought too little may bring more.
local function wake_time()
  if call('LLEN', P .. K.wait) > suspects_left() or call('ZCARD', P .. K.prioritized) > 0 then return now end
  local first = call('ZRANGE', P .. K.delayed, 0, 0, 'WITHSCORES')
  return first[2] and math.max(now, math.floor(first[2] / N.ties))
end
