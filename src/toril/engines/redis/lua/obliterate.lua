-- Pause a queue, then remove it with everything in it, a bounded part a call.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; limit, `refuse` or `remove` running jobs, the queue's name
-- Returns ids, 1 if there may be more
-- Errors  TORILRUNNING how many
-- Events  none: the stream goes too
-- uses calls jobs parents sweep
local before = calls.recall()
if before then return before end
local mistake = context.wrong('list', K.wait, K.active)
  or context.wrong('zset', K.prioritized, K.delayed, K.completed, K.failed) or context.wrong('hash', K.meta)
if mistake then return mistake end

local limit, running = tonumber(ARGV[4]), call('LLEN', P .. K.active)
if running > 0 and ARGV[5] == 'refuse' then return redis.error_reply('TORILRUNNING ' .. running) end
local known = call('EXISTS', P .. K.meta, P .. K.id) > 0
if known then
  call('HSET', P .. K.meta, F.is_paused, 1)
  call('DEL', P .. K.marker)
end

local function nothing_stays() return false end
for _, name in ipairs({K.active, K.wait, K.paused}) do sweep.list(name, limit, nothing_stays) end
sweep.parked(limit, nothing_stays)
for _, name in ipairs({K.prioritized, K.delayed, K.waiting_children, K.completed, K.failed}) do
  sweep.zset(name, limit, nothing_stays)
end
jobs.flush_deleted()
parents.flush()
if #sweep.ids < limit and known then
  for _, scheduler in ipairs(call('ZRANGE', P .. K.repeat, 0, -1)) do call('DEL', P .. K.schedule .. scheduler) end
  for _, name in ipairs({K.id, K.meta, K.active, K.pc, K.marker, K.stalled, K.stalled_check, K.limiter, K.events, K.repeat,
    K.metrics_completed, K.metrics_failed, K.toril, K.deadlines, K.suspects, K.starts, K.runs_completed, K.runs_failed, K.runs_cancelled,
    K.results, K.results_till, K.ages, K.schedules, K.building, K.parked, K.seats, K.put_off, K.ring, K.till, K.group_starts,
    K.group_own, K.resting, K.awaited, K.kept_signals, K.kept_till, K.sent_ids, K.sent_till, K.figures, K.figures_noted, K.figures_past, K.figures_all}) do
    call('DEL', P .. name, P .. name .. K.metrics_data)
  end
  call('SREM', W .. G.queues, ARGV[6])
end
local answer = {sweep.ids, #sweep.ids == limit and 1 or 0}
calls.remember(answer)
return answer
