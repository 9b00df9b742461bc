-- P and W are what the queue's and the fleet's keys begin with. `now` is the server's clock, unless the caller sent a
-- time: then keys that expire outlive it by `slack`, and what counts is the time written beside them.
local P, W = KEYS[1], KEYS[2]
local call = redis.call
local now, slack = tonumber(ARGV[1]), N.slack
if not now then
  local time = call('TIME')
  now, slack = time[1] * 1000 + math.floor(time[2] / 1000), 0
end
-- A number becomes an argument by way of `%.17g`, which is slow; texts of those that come often are made once.
-- Not by `%d`: where the server is one of 32 bits, no time in ms fits.
local NOW = string.format('%.0f', now)
