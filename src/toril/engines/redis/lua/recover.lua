-- Recover jobs whose lease ran out, and those of dead workers even before.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, limit, cause or nothing, `1` if there is a cause; for each lease of the dead id, token
-- Returns {ids that wait again, ids failed, ids cancelled}, the next deadline, 1 if there are more, now
-- Events  failed, waiting, stalled
-- uses events groups group_maintenance places metrics finish
local TOO_OFTEN = 'job stalled more than allowable limit'

-- A lock that is there although our lease ran out: with the server's clock both end together, so it is another's by now.
local function is_anothers(id)
  return slack == 0 and call('EXISTS', P .. id .. K.lock) == 1
end

-- One stall more: the job waits to be run alone, or has failed. It fails only for a stall in a run of its own, where
-- nothing else can have brought the worker down; or where it may not run twice at all. `back` has the ids of those that
-- wait again, of those that failed, and of those that were to be stopped anyway.
local function recover(id, back)
  local f = call('HMGET', P .. id, F.name, F.added_at, F.started_at, F.attempts_made, F.stalls, F.worker, F.opts, F.held,
    F.cancelling, F.parent, F.group, F.order, F.priority, F.parked)
  call('DEL', P .. id .. K.lock)
  call('SREM', P .. K.stalled, id)
  if not f[1] then return end
  metrics.count(F.stalled)
  local stalls, alone, allowed = (context.number(f[5]) or 0) + 1, (f[8] or '0 0 1'):match('^%d+ (%d) (%d+)')
  local job = {name = f[1], added = f[2], started = f[3], made = context.number(f[4]) or 0, stalls = stalls, worker = f[6], options = f[7],
    parent = f[10], group = f[11], parked = f[14]}
  allowed = tonumber(allowed) or 1
  call('HSET', P .. id, F.stalls, stalls)
  if f[9] then
    finish.fail(id, job, 'cancelled', f[9], 'JobCancelled', '', f[9]:sub(1, 1024), #f[9] <= 1024)
    table.insert(back[3], id)
  elseif stalls > allowed and (alone == '1' or allowed == 0) then
    local reason = ARGV[4] == '1' and TOO_OFTEN .. ': ' .. ARGV[3] or TOO_OFTEN
    finish.fail(id, job, 'stalled', reason, 'JobStalled', '', reason:sub(1, 1024), #reason <= 1024)
    table.insert(back[2], id)
  else
    if ARGV[4] == '1' then call('HSET', P .. id, F.stall_cause, ARGV[3]) end
    if not f[11] or not groups.recover(id, f[11], f[12], f[13]) then
      call('RPUSH', P .. K.wait, id)
      call('ZADD', P .. K.suspects, call('HINCRBY', P .. K.toril, F.stood, 1), id)
    end
    events.add('waiting', 'jobId', id, 'prev', 'active')
    table.insert(back[1], id)
  end
  if ARGV[4] == '1' then events.add('stalled', 'jobId', id, 'cause', ARGV[3]) else events.add('stalled', 'jobId', id) end
end

-- Running jobs that have no deadline of ours are run by other libraries' workers. They take a job and its lock in one step,
-- so who has none any more is lost: one look tells, at the oldest. When the first of their locks may run out.
local function recover_strangers(back)
  if call('LLEN', P .. K.active) <= call('ZCARD', P .. K.deadlines) then return end
  local soonest
  for _, id in ipairs(call('LRANGE', P .. K.active, -N.strangers, -1)) do
    if not call('ZSCORE', P .. K.deadlines, id) then
      local left = call('PTTL', P .. id .. K.lock)
      if left == -2 and call('LREM', P .. K.active, -1, id) > 0 then
        metrics.count(F.lost)
        recover(id, back)
      elseif left >= 0 then
        soonest = math.min(soonest or now + left, now + left)
      end
    end
  end
  return soonest
end

local limit, back = tonumber(ARGV[2]), {{}, {}, {}}
local mistake = context.wrong('list', K.wait, K.active) or context.wrong('zset', K.marker, K.deadlines, K.suspects)
  or context.wrong('stream', K.events) or context.wrong('hash', K.meta, K.toril) or context.wrong('set', K.stalled)
  or finish.wrong('failed', true)
if mistake then return mistake end

local lost, seen = {}, {}
for i = 5, #ARGV, 2 do
  if not seen[ARGV[i]] and call('GET', P .. ARGV[i] .. K.lock) == ARGV[i + 1] and call('ZSCORE', P .. K.deadlines, ARGV[i]) then
    seen[ARGV[i]] = true
    lost[#lost + 1] = ARGV[i]
  end
end
local dead = #lost
local overdue = call('ZRANGEBYSCORE', P .. K.deadlines, '-inf', now, 'LIMIT', 0, limit)
for i = 1, #overdue do
  if not seen[overdue[i]] then lost[#lost + 1] = overdue[i] end
end
for i, id in ipairs(lost) do
  call('ZREM', P .. K.deadlines, id)
  local ours = i <= dead or not is_anothers(id)
  if ours and call('LREM', P .. K.active, -1, id) > 0 then
    if i > dead then metrics.count(F.lost) end
    recover(id, back)
  end
end
local soonest = recover_strangers(back)
if #back[1] + #back[2] + #back[3] > 0 then
  finish.flush()
  groups.flush()
  events.trim(call('HGET', P .. K.meta, F.max_events))
  if not places.is_blocked() then call('ZADD', P .. K.marker, 0, '0') end
end
group_maintenance.check_seats(N.seats_checked)
if groups.admitted_some or groups.changed then places.mark_ready() end
local first = call('ZRANGE', P .. K.deadlines, 0, 0, 'WITHSCORES')
local following = tonumber(first[2]) or soonest or false
if soonest then following = math.min(following, soonest) end
return {back, following, #overdue == limit and 1 or 0, now}
