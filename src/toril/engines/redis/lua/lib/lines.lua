-- include claim
-- include rate
-- From where a claim takes, and what keeps it from more: ARGV[4] want, [8] alone ('only': suspects only), [10] priorities first.
-- A suspect that stands in no line any more was taken by another library's worker, or is gone.
local function pop_suspect()
  while suspects > 0 do
    local first = call('ZPOPMIN', P .. K.suspects)[1]
    suspects = suspects - 1
    if first and call('LREM', P .. K.wait, -1, first) > 0 then return {first} end
  end
  return {}
end

-- The next in the line, past those who must run alone; they stay at the front.
local function pop_waiting(size)
  if suspects == 0 then
    local ids = call('RPOP', P .. K.wait, size) or {}
    ready = ready - #ids
    return ids
  end
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
  if prioritized == 0 then return {} end
  local found, ids = call('ZPOPMIN', P .. K.prioritized, size), {}
  for i = 1, #found, 2 do ids[#ids + 1] = found[i] end
  prioritized = prioritized - #ids
  if #ids == 0 then call('DEL', P .. K.pc) end
  return ids
end

local function take_some(size)
  if ARGV[8] ~= '' and size > 0 and suspects > 0 then take(pop_suspect, 1, 1) end
  if ARGV[8] == 'only' or #taken > 0 then return end
  local first, second = pop_waiting, pop_prioritized
  if ARGV[10] == '1' then first, second = second, first end
  for _ = 1, N.passes do
    take(first, size - #taken, 0)
    if #taken < size then take(second, size - #taken, 0) end
    if #taken == size or ended_early + groups.sent_off >= N.expired or not groups.used() or groups.more(size - #taken) == 0 then return end
    ready, prioritized, moved = ready + size, prioritized + size, true  -- what was let in is in one of them
  end
end

-- How many the gates let through, which is the narrowest, and when it opens.
local function gates(want)
  if meta[1] then return 0, 'paused' end
  local size, gate, opens = want, nil, nil
  if most_running and most_running - running < size then
    size, gate = math.max(0, most_running - running), 'concurrency'
  end
  local left, at = rate_left()
  local held = tonumber(own[4] or nil)
  if held and held > now then left, at = 0, math.max(held, at or 0) end
  if left < size then size, gate, opens = left, 'rate', at end
  return size, gate, opens
end

-- When a claim that brought too little may bring more.
local function wake_time()
  if ARGV[8] == 'only' then return end
  if ready > suspects or prioritized > 0 or groups.turns() > 0 then return now end
  local first = call('ZRANGE', P .. K.delayed, 0, 0, 'WITHSCORES')
  local due, till = first[2] and math.max(now, math.floor(first[2] / N.ties)), groups.next_till()
  return till and math.min(due or till, till) or due
end
