-- A queue's counts, settings and totals.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now
-- Returns waiting, prioritized, active, delayed, waiting for children, completed, failed; paused, concurrency, rate's max,
--         ms and window, how many may wait, until when nothing starts, limits of groups; completed and failed in all
-- Events  none
-- include begin
local meta = call('HMGET', P .. K.meta, F.is_paused, F.concurrency, F.rate_max, F.rate_ms)
local own = call('HMGET', P .. K.toril, F.window, F.max_waiting, F.held_till, F.groups_set, F.groups_declared)

-- Versions before 5 put a marker among the jobs, at the next end; it is none of them.
local function line(key)
  local first = call('LINDEX', key, -1)
  return call('LLEN', key) - (first and first:sub(1, 2) == '0:' and 1 or 0)
end

return {
  line(P .. K.wait) + line(P .. K.paused) + call('ZCARD', P .. K.parked), call('ZCARD', P .. K.prioritized),
  call('LLEN', P .. K.active),
  call('ZCARD', P .. K.delayed), call('ZCARD', P .. K.waiting_children), call('ZCARD', P .. K.completed),
  call('ZCARD', P .. K.failed), meta[1], meta[2], meta[3], meta[4], own[1], own[2],
  (tonumber(own[3] or nil) or 0) > now and own[3], own[4] or own[5],
  call('HGET', P .. K.metrics_completed, F.count), call('HGET', P .. K.metrics_failed, F.count),
}
