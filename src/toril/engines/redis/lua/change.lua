-- Retry, promote, cancel or remove jobs whose state allows it.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; verb, reason; ids
-- Returns ids done, ids asked, {id, state} of those refused
-- Events  waiting, waiting-children, failed, removed
-- include begin
-- include guard
-- include calls
-- include endings
-- include marks
-- include places
-- include replay
-- include states
local before, late = recalled()
if late then return late end
if before then return before end
local mistake = wrong('list', K.wait, K.active) or wrong('zset', K.prioritized, K.delayed, K.waiting_children, K.completed, K.marker, K.suspects)
  or wrong('stream', K.events) or wrong('hash', K.meta, K.toril) or wrong('string', K.pc) or wrong_for_ending('failed', true)
if mistake then return mistake end

-- A parent that failed waits for its children that have not succeeded, which run again with it.
local function again(id, state)
  leave(id, state)
  renew(P .. id)
  rejoin(id, call('HGET', P .. id, F.parent))
  if state == 'failed' and call_back(P .. id) then
    into_line(P, id, true)
  else
    to_back(id, as_number(call('HGET', P .. id, F.priority), N.lowest_priority) or 0)
    event('waiting', 'jobId', id, 'prev', state)
  end
end

local function promote(id, state)
  leave(id, state)
  call('HSET', P .. id, F.delay, 0)
  to_back(id, as_number(call('HGET', P .. id, F.priority), N.lowest_priority) or 0)
  event('waiting', 'jobId', id, 'prev', 'delayed')
end

-- A running job is asked to stop, and its worker told that someone asked.
local function cancel(id, state, reason)
  local f = call('HMGET', P .. id, F.name, F.added_at, F.started_at, F.attempts_made, F.stalls, F.worker, F.opts, F.parent, F.parked)
  if state == 'active' then
    call('HSET', P .. id, F.cancelling, reason)
    local poke = W .. G.poke .. (f[6] or '') .. ':poke'
    call('ZADD', poke, 0, '0')
    call('PEXPIRE', poke, N.remembered)
    return true
  end
  leave(id, state)
  local job = {name = f[1], added = f[2], started = f[3], made = as_number(f[4]) or 0, stalls = as_number(f[5]) or 0, worker = f[6], options = f[7],
    parent = f[8], parked = f[9]}
  fail_job(id, job, 'cancelled', reason, 'JobCancelled', '', reason:sub(1, 1024), #reason <= 1024)
end

local function remove(id, state)
  leave(id, state)
  disown(id)
  forget(id)
  event('removed', 'jobId', id, 'prev', state == 'waiting' and 'wait' or state:gsub('_', '-'))
end

local VERBS = {
  retry = {again, {completed = true, failed = true}},
  promote = {promote, {delayed = true}},
  cancel = {cancel, {waiting = true, prioritized = true, delayed = true, waiting_children = true, active = true}},
  remove = {remove, {waiting = true, prioritized = true, delayed = true, waiting_children = true, completed = true, failed = true}},
}
local act, allowed = VERBS[ARGV[4]][1], VERBS[ARGV[4]][2]
local done, asked, refused = {}, {}, {}
for i = 6, #ARGV do
  local id, state = ARGV[i], state_of(ARGV[i])
  if with_parent[P .. id] then
    done[#done + 1] = id
  elseif not state or not allowed[state] then
    refused[#refused + 1] = {id, state or false}
  else
    local list = act(id, state, ARGV[5]) and asked or done
    list[#list + 1] = id
  end
end
-- include changed
