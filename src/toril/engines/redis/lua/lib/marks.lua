-- include turns
-- The marker tells those who sleep that a claim may bring something.
local function blocked()
  local meta = call('HMGET', P .. K.meta, F.is_paused, F.concurrency)
  if meta[1] then return true end
  return meta[2] and call('LLEN', P .. K.active) >= math.floor(tonumber(meta[2]) or math.huge)
end

-- Suspects do not count: who runs something cannot take them, and would be woken again and again. But a mark that was set
-- for them stays.
local function mark_ready()
  groups.flush()
  local waiting, suspects = call('LLEN', P .. K.wait), call('ZCARD', P .. K.suspects)
  if waiting > suspects or call('ZCARD', P .. K.prioritized) > 0 or groups.news or groups.turns() > 0 or groups.is_due() then
    if not blocked() then return call('ZADD', P .. K.marker, 0, '0') end
  elseif suspects > 0 then
    return
  end
  call('ZREM', P .. K.marker, '0')
end

local function mark_due()
  local first = call('ZRANGE', P .. K.delayed, 0, 0, 'WITHSCORES')
  if first[2] then call('ZADD', P .. K.marker, math.floor(first[2] / N.ties), '1') end
end
