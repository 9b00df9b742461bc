-- A queue's counts, settings and totals.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now
-- Returns waiting, prioritized, active, delayed, waiting for children, completed, failed, resting; paused, concurrency, rate's max,
--         ms and window, how many may wait, until when nothing starts, limits of groups; completed, failed and
--         cancelled in all
-- Events  none
-- uses queue
local meta = call('HMGET', P .. K.meta, F.is_paused, F.concurrency, F.rate_max, F.rate_ms)
local own = call('HMGET', P .. K.toril, F.window, F.max_waiting, F.held_till, F.groups_set, F.groups_declared)

-- Before the minute under way, and in it: see `metrics.flush`. A key of a wrong type tells nothing.
local function cancelled_in_all()
  local sum = 0
  for _, key in ipairs({K.figures_all, K.figures}) do
    local count = redis.pcall('HGET', P .. key, F.cancelled)
    sum = sum + (type(count) == 'string' and tonumber(count) or 0)
  end
  return sum
end

local found = queue.counts(meta[1])
for _, each in ipairs({
  meta[2], meta[3], meta[4], own[1], own[2], (tonumber(own[3] or nil) or 0) > now and own[3], own[4] or own[5],
  call('HGET', P .. K.metrics_completed, F.count), call('HGET', P .. K.metrics_failed, F.count), cancelled_in_all(),
}) do found[#found + 1] = each end
return found
