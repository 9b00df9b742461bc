-- Rates: which one applies, how many starts it allows, and the starts that count.
-- needs nothing
-- BullMQ's `limiter` counts a fixed window; a sliding one is a set of starts, with their number beside it.
local rates = {max = false, ms = 0, window = 'fixed', over = 0}

-- What holds is the queue's rate, or else the claimer's, as texts. Other programs may store a rate without a window's
-- length: then it is the claimer's, as in BullMQ, or a second.
function rates.choose(max, ms, window, own_max, own_ms, own_window)
  max, ms = context.number(max) or 0, context.number(ms) or 0
  if max > 0 then
    rates.max, rates.ms, rates.window = max, ms > 0 and ms or tonumber(own_ms) or 1000, window or 'fixed'
  elseif own_max ~= '' then
    rates.max, rates.ms, rates.window = tonumber(own_max), tonumber(own_ms), own_window
  end
end

-- How many starts it allows now and, if that is not all, when it allows more. Writes nothing.
function rates.left()
  if not rates.max then return math.huge, nil end
  if rates.window == 'sliding' then return rates.sliding_left() end
  local count, left = tonumber(call('GET', P .. K.limiter) or nil), call('PTTL', P .. K.limiter)
  if slack > 0 then left = (tonumber(call('HGET', P .. K.toril, F.window_till) or nil) or 0) - now end
  if not count or left <= 0 then return rates.max, nil end
  return math.max(0, rates.max - count), now + left
end

-- `over` are the starts that no longer count.
function rates.sliding_left()
  local old, over = call('ZRANGEBYSCORE', P .. K.starts, '-inf', now - rates.ms), 0
  for i = 1, #old do over = over + tonumber(old[i]:match(':(%d+)$')) end
  local count = (tonumber(call('HGET', P .. K.toril, F.starts_count) or nil) or 0) - over
  local oldest = call('ZRANGE', P .. K.starts, #old, #old, 'WITHSCORES')
  rates.over = over
  return math.max(0, rates.max - count), oldest[2] and oldest[2] + rates.ms
end

-- Delete the starts that `left` found to no longer count.
function rates.forget_old()
  if rates.over == 0 then return end
  call('ZREMRANGEBYSCORE', P .. K.starts, '-inf', now - rates.ms)
  call('HINCRBY', P .. K.toril, F.starts_count, -rates.over)
end

-- Large limits are counted in a hundredth of the window, rounded up, so that the limit is never exceeded.
function rates.count_starts(count, fence)
  if not rates.max or count == 0 then return end
  if rates.window ~= 'sliding' then return rates.count_fixed(count) end
  local slot = now
  if rates.max > 1000 then
    local width = math.max(1, math.floor(rates.ms / 100))
    slot = math.ceil(now / width) * width
  end
  call('ZADD', P .. K.starts, slot, slot .. ':' .. fence .. ':' .. count)
  call('HINCRBY', P .. K.toril, F.starts_count, count)
end

function rates.count_fixed(count)
  if slack > 0 then
    local till = tonumber(call('HGET', P .. K.toril, F.window_till) or nil) or 0
    if till <= now then
      call('HSET', P .. K.toril, F.window_till, now + rates.ms)
      call('SET', P .. K.limiter, 0, 'PX', rates.ms + slack)
    end
    call('INCRBY', P .. K.limiter, count)
  elseif call('PTTL', P .. K.limiter) > 0 then
    call('INCRBY', P .. K.limiter, count)
  else
    call('SET', P .. K.limiter, count, 'PX', rates.ms)
  end
end
