-- P and W are what the queue's and the fleet's keys begin with. `now` is the server's clock, unless the caller sent a
-- time: then keys that expire outlive it by `slack`, and what counts is the time written beside them.
local P, W = KEYS[1], KEYS[2]
local call = redis.call
local now, slack, NOW = tonumber(ARGV[1]), N.slack, ARGV[1]
-- A number becomes an argument by way of `%.17g`, which is slow; texts of those that come often are made once.
-- Not by `%d`: where the server is one of 32 bits, no time in ms fits.
if now then
  NOW = string.format('%.0f', now)
else
  local time = call('TIME')
  local ms = math.floor(time[2] / 1000)
  now, slack, NOW = time[1] * 1000 + ms, 0, time[1] .. string.format('%03d', ms)
end

-- A number of a hash or of options, which any program may have written: nil unless it is one from 0 on. A script does not
-- roll back, and what is not a number, or without an end, would stop it half-way.
local function as_number(value, most)
  local found = tonumber(value or nil)
  if found and found >= 0 then return math.min(math.floor(found), most or N.largest) end
end
