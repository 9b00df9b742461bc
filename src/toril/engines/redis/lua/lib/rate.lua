-- How many may start by the queue's rate, or else by the claimer's. BullMQ's `limiter` counts a fixed window; a sliding one
-- is a set of starts, with their number beside it.
local rate

local function fixed_left()
  local count = tonumber(call('GET', P .. K.limiter) or nil)
  local left = call('PTTL', P .. K.limiter)
  if slack > 0 then left = (tonumber(call('HGET', P .. K.toril, F.window_till) or nil) or 0) - now end
  if not count or left <= 0 then return rate.max, nil end
  return math.max(0, rate.max - count), now + left
end

local function sliding_left()
  local over = call('ZRANGEBYSCORE', P .. K.starts, '-inf', now - rate.ms)
  local count = 0
  for i = 1, #over do count = count + tonumber(over[i]:match(':(%d+)$')) end
  if #over > 0 then call('ZREMRANGEBYSCORE', P .. K.starts, '-inf', now - rate.ms) end
  count = call('HINCRBY', P .. K.toril, F.starts_count, 0 - count)
  local oldest = call('ZRANGE', P .. K.starts, 0, 0, 'WITHSCORES')
  return math.max(0, rate.max - count), oldest[2] and oldest[2] + rate.ms
end

-- The rate in force, how many it lets start now, and when it lets more.
local function rate_left()
  local max, ms = as_number(meta[3]) or 0, as_number(meta[4]) or 0
  if max > 0 then
    rate = {max = max, ms = ms > 0 and ms or tonumber(ARGV[12]) or 1000, window = own[2] or 'fixed'}
  elseif ARGV[11] ~= '' then
    rate = {max = tonumber(ARGV[11]), ms = tonumber(ARGV[12]), window = ARGV[13]}
  end
  if not rate then return math.huge, nil end
  if rate.window == 'sliding' then return sliding_left() end
  return fixed_left()
end

local function count_fixed(count)
  if slack > 0 then
    local till = tonumber(call('HGET', P .. K.toril, F.window_till) or nil) or 0
    if till <= now then
      call('HSET', P .. K.toril, F.window_till, now + rate.ms)
      call('SET', P .. K.limiter, 0, 'PX', rate.ms + slack)
    end
    call('INCRBY', P .. K.limiter, count)
  elseif call('PTTL', P .. K.limiter) > 0 then
    call('INCRBY', P .. K.limiter, count)
  else
    call('SET', P .. K.limiter, count, 'PX', rate.ms)
  end
end

-- Large limits are counted in a hundredth of the window, rounded up, so that the limit is never exceeded.
local function count_starts(count, fence)
  if not rate or count == 0 then return end
  if rate.window ~= 'sliding' then return count_fixed(count) end
  local slot = now
  if rate.max > 1000 then
    local width = math.max(1, math.floor(rate.ms / 100))
    slot = math.ceil(now / width) * width
  end
  call('ZADD', P .. K.starts, slot, slot .. ':' .. fence .. ':' .. count)
  call('HINCRBY', P .. K.toril, F.starts_count, count)
end
