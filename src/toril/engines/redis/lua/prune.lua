-- Remove what retention no longer keeps: results, aged jobs, workers that are gone.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, limit
-- Returns how much was removed, how many circuits are known
-- Events  none
-- uses jobs groups dead_letters flows signals workers
local mistake = context.wrong('hash', K.results, K.toril, K.kept_signals)
  or context.wrong('zset', K.results_till, K.kept_till, K.sent_ids, K.sent_till, K.ages, K.completed, K.failed)
if mistake then return mistake end

local limit = tonumber(ARGV[2])
local dead = call('ZRANGEBYSCORE', W .. G.workers_till, '-inf', now - N.ordered, 'LIMIT', 0, limit)
for i = 1, #dead do workers.forget(dead[i]) end
local results = call('ZRANGEBYSCORE', P .. K.results_till, '-inf', now, 'LIMIT', 0, limit)
for i = 1, #results do
  call('ZREM', P .. K.results_till, results[i])
  call('HDEL', P .. K.results, results[i])
end

-- Jobs kept for an age that has passed, unless they have run again since.
local function is_over(id, state, option)
  local f = call('ZSCORE', P .. state, id) and call('HMGET', P .. id, F.finished_at, F.opts)
  if not f or not f[1] then return false end
  local _, age = jobs.retention(jobs.options(f[2])[option])
  return age and (context.number(f[1]) or 0) + age < now
end

local aged = call('ZRANGEBYSCORE', P .. K.ages, '-inf', now, 'LIMIT', 0, limit)
for i = 1, #aged do
  for state, option in pairs({[K.completed] = 'removeOnComplete', [K.failed] = 'removeOnFail'}) do
    if is_over(aged[i], state, option) then
      call('ZREM', P .. state, aged[i])
      jobs.delete(aged[i])
    end
  end
  call('ZREM', P .. K.ages, aged[i])
end
local moved = (dead_letters.can_add() and dead_letters.collect(limit) or 0) + flows.roll_back(limit) + flows.release_stuck_parents()
moved = moved + signals.drop_old(limit)
if groups.used() then moved = moved + groups.forget_starts() end
groups.flush()
jobs.flush_deleted()
if dead_letters.can_add() then moved = moved + dead_letters.prune(limit) end
return {#dead + #results + #aged + moved, call('HLEN', W .. G.circuits)}
