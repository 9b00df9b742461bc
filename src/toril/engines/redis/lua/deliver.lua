-- Send signals, in order: each to the inbox of its job, or by key to the job that waits for it, now or later. A job that
-- rests for one goes to the front of the line, however full its inbox is.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; the queue's name; for each name, key, job, id, ttl, `1` only if a job rests for it, payload
-- Returns for each an outcome, and its job if that is known
-- Events  waiting
-- uses calls events metrics queue places steps signals parents
local before = calls.recall()
if before then return before end
local mistake = context.wrong('list', K.wait, K.active) or context.wrong('stream', K.events)
  or context.wrong('zset', K.prioritized, K.delayed, K.waiting_children, K.marker, K.suspects, K.resting, K.kept_till,
    K.sent_ids, K.sent_till, K.completed, K.failed)
  or context.wrong('hash', K.meta, K.toril, K.awaited, K.kept_signals) or context.wrong('string', K.pc)
if mistake then return mistake end

local longest

local function has_ended(id)
  if call('EXISTS', P .. id) == 0 then return call('EXISTS', (parents.dead_letter_key(P .. id))) == 1 end
  return call('ZSCORE', P .. K.completed, id) or call('ZSCORE', P .. K.failed, id)
end

local function number() return call('HINCRBY', P .. K.toril, F.signals, 1) end

-- Where a job rests for a signal; nil if it does not.
local function rests_for(id, name, key)
  local text, place = steps.rest_of(id)
  for _, reason in ipairs(text and cjson.decode(text)['for'] or {}) do
    for _, wait in ipairs(reason[4]) do
      if wait[1] == name and (wait[2] == cjson.null and '' or wait[2]) == key then return place end
    end
  end
end

local function wake(id, place)
  longest = longest or call('HGET', P .. K.meta, F.max_events) or ''
  places.leave(id, place)
  call('HSET', P .. id, F.delay, 0)
  places.to_front(id, context.number(call('HGET', P .. id, F.priority), N.lowest_priority) or 0)
  events.add('waiting', 'jobId', id, 'prev', place == 'delayed' and place or 'waiting-children')
end

local function to_job(job, name, key, id, only, payload)
  local there = redis.pcall('HEXISTS', P .. job, F.name)
  if context.is_reserved(job) or there ~= 1 or has_ended(job) then
    return {not context.is_reserved(job) and has_ended(job) and 'ended' or 'missing', false}
  end
  local inbox, bytes = signals.list(P .. job, F.inbox), #payload
  if id ~= '' and signals.is_known(id, inbox, signals.list(P .. job, F.signal_ids)) then return {'duplicate', job} end
  local place = rests_for(job, name, key)
  if only and not place then return {'not_waiting', job} end
  for i = 1, #inbox do bytes = bytes + #inbox[i][6] end
  if not place and (#inbox >= N.inbox or bytes > N.inbox_bytes) then return {'full', job} end
  inbox[#inbox + 1] = {number(), name, key, id, now, payload}
  signals.save(P .. job, F.inbox, inbox)
  if place then wake(job, place) end
  return {place and 'woken' or 'kept', job}
end

local function by_key(name, key, id, ttl, only, payload)
  local wanted = signals.name_of(name, key)
  local job, till = steps.used() and signals.waiter(wanted) or false, now + tonumber(ttl)
  if id ~= '' and signals.was_sent(wanted, id) then return {'duplicate', job} end
  local answer
  if job then
    answer = to_job(job, name, key, id, only, payload)
  elseif only then
    answer = {'not_waiting', false}
  else
    queue.register(ARGV[4])
    answer = {signals.keep({number(), name, key, id, now, payload, till}) and 'kept' or 'full', false}
  end
  if id ~= '' and (answer[1] == 'woken' or answer[1] == 'kept') then signals.remember_sent(wanted, id, till) end
  return answer
end

local answer = {}
for i = 5, #ARGV, 7 do
  local name, key, job, id, ttl, only, payload = unpack(ARGV, i, i + 6)
  if key == '' then
    answer[#answer + 1] = to_job(job, name, key, id, only == '1', payload)
  else
    answer[#answer + 1] = by_key(name, key, id, ttl, only == '1', payload)
  end
end
for i = 1, #answer do
  local outcome = answer[i][1]
  if outcome ~= 'missing' and outcome ~= 'ended' then metrics.count(F.signalled .. outcome) end
end
metrics.flush()
if longest then
  events.trim(longest)
  places.mark_ready()
  places.mark_due()
end
calls.remember(answer)
return answer
