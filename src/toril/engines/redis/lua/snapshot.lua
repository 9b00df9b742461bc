-- What is counted of queues, and the workers that are alive.
-- KEYS    nothing of the queues: several come together; the fleet's base
-- ARGV    now, how many minutes; the length of slices, how many; the queues' bases
-- Returns now, workers; for each queue its counts, since when its oldest job waits; for completed and failed ones count,
--         prevTS, prevCount, the minutes before prevTS's, newest first; counts of the minute under way (a field may
--         come twice), of all before it, and slices: see `metrics`; at last who leads the reapers
-- Events  none
-- uses queue metrics workers
local step, slices = tonumber(ARGV[3]), {}
local last = math.floor(now / 60000 / step)
for back = 0, ARGV[4] - 1 do slices[back + 1] = step .. ':' .. (last - back) % N.slices end

local function under_way()
  local found = call('HGETALL', P .. K.figures)
  for field, count in pairs(metrics.slices().unread_attempts()) do found[#found + 1], found[#found + 2] = field, count end
  return found
end

local queues = {}
for i = 5, #ARGV do
  P = ARGV[i]
  queues[#queues + 1] = {
    queue.counts(call('HGET', P .. K.meta, F.is_paused)), metrics.oldest_wait(), metrics.minutes(K.metrics_completed, ARGV[2]),
    metrics.minutes(K.metrics_failed, ARGV[2]), under_way(), call('HGETALL', P .. K.figures_all),
    call('HMGET', P .. K.figures_past, unpack(slices)),
  }
end
local till, leader = (call('GET', W .. G.lead .. N.reaper .. ':lead') or ''):match('^(%d+) (.*)$')
return {now, workers.living(), queues, till and tonumber(till) > now and leader or false}
