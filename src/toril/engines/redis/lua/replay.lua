-- Move dead letters back into the queue that they came from, as jobs that have tried nothing yet.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; the queue's name; for each letter id, job, `1` if there is a payload, the payload, options
--         or nothing
-- Returns letters done, dead children of those among them, nothing, {letter, state} of those refused
-- Events  waiting, waiting-children
-- include begin
-- include guard
-- include calls
-- include known
-- include events
-- include places
-- include marks
-- include states
-- include burying
-- include letters
-- include rejoining
local before, late = recalled()
if late then return late end
if before then return before end
local mistake = wrong('list', K.wait, K.active) or wrong('zset', K.prioritized, K.marker, K.results_till)
  or wrong('hash', K.meta, K.toril, K.results) or wrong('stream', K.events) or wrong('string', K.pc, K.id)
if mistake then return mistake end

local done, refused, longest, revived = {}, {}, nil, {}

-- A number that the queue has not given out yet, since it is another queue by now, is given out.
local function count_up_to(base, id)
  local number = id:match('^[1-9]%d*$') and #id < 16 and tonumber(id)
  if number and number > (tonumber(try('GET', base .. K.id)) or 0) then try('SET', base .. K.id, id) end
end

-- Into the line of its queue; of another queue than this one to the front, as parents go that were waited for.
local function into_line(base, id, priority)
  if base == P then
    to_back(id, as_number(priority, N.lowest_priority) or 0)
    event('waiting', 'jobId', id, 'prev', 'failed')
  elseif try('ZADD', base .. K.waiting_children, NOW, id) then
    free({base = base, id = id, key = base .. id}, K.waiting_children, 'failed')
  end
end

local function stands_in(key, id) return type(try('ZSCORE', key, id)) == 'string' end

-- A failed child that its queue has kept.
local function retry_kept(base, id)
  local key = base .. id
  try('ZREM', base .. K.failed, id)
  try('ZREM', base .. K.ages, id)
  call('HDEL', key, F.finished_at, F.started_at, F.reason, F.result, F.attempts_made, F.attempts_made_old, F.stalls,
    F.trace, F.kind, F.stall_cause, F.progress, F.expires, F.waited, F.worker, F.deferred, F.cancelling)
  call('HSET', key, F.delay, 0)
  forgive(key)
  into_line(base, id, call('HGET', key, F.priority))
end

-- What becomes of a child that has not succeeded, when its parent runs again: `open`, `completed` or `gone`.
local revive
local function again_with_parent(child)
  local queue, id = child:sub(#PREFIX + 1):match('^([^:]*):(.*)$')
  if not queue then return 'gone' end
  local base, dead, letter = PREFIX .. queue .. ':', letter_key(child)
  if call('EXISTS', child) == 1 then
    if stands_in(base .. K.completed, id) then return 'completed', try('HGET', child, F.result) end
    if stands_in(base .. K.failed, id) then retry_kept(base, id) end
    return 'open'
  end
  if not stands_in(D .. K.letters, letter) then return 'gone' end
  revive(letter, base, id)
  revived[letter] = true
  return 'open'
end

-- Children that have not succeeded run again, of a parent whose letter is at `key`; whether there are any to wait for.
local function call_back(key)
  local children = call('ZRANGE', key .. K.unsuccessful, 0, -1)
  for _, child in ipairs(call('SMEMBERS', key .. K.dependencies)) do children[#children + 1] = child end
  for _, child in ipairs(children) do
    local becomes, result = again_with_parent(child)
    call('ZREM', key .. K.unsuccessful, child)
    call(becomes == 'open' and 'SADD' or 'SREM', key .. K.dependencies, child)
    if becomes == 'completed' then call('HSET', key .. K.processed, child, result or 'null') end
    if becomes == 'gone' then
      call('HSET', key .. K.child_failures, child, 'it failed, and nothing is left of it that could be run again')
    end
  end
  return call('SCARD', key .. K.dependencies) > 0
end

function revive(letter, base, id, data, options)
  local from, to = D .. letter, base .. id
  local f = call('HMGET', from, F.data, F.letter_head, F.letter_data, F.priority, F.parked)
  local waits = f[5] and call_back(from)
  call('RENAME', from, to)
  call('ZREM', D .. K.letters, letter)
  call('LREM', D .. K.wait, -1, letter)
  call('HSET', to, F.data, data or own_data(f[1] or '', f[2], f[3]), F.delay, 0, F.ready, NOW)
  if options then call('HSET', to, F.opts, options) end
  call('HDEL', to, F.finished_at, F.started_at, F.reason, F.result, F.attempts_made, F.attempts_made_old, F.stalls,
    F.starts, F.held, F.trace, F.kind, F.stall_cause, F.waited, F.worker, F.letter_queue, F.letter_job, F.letter_cause,
    F.letter_head, F.letter_data, F.dedup)
  try('HDEL', base .. K.results, id)
  try('ZREM', base .. K.results_till, id)
  count_up_to(base, id)
  if f[5] then
    call('HSET', to, F.parked, 0)
    move_kin(from, to)
  end
  done[#done + 1] = letter
  if waits then
    try('ZADD', base .. K.waiting_children, NOW, id)
    try('XADD', base .. K.events, '*', 'event', 'waiting-children', 'jobId', id, 'prev', 'failed')
  else
    into_line(base, id, f[4])
  end
end

for i = 5, #ARGV, 5 do
  local letter, id = ARGV[i], ARGV[i + 1]
  local f = redis.pcall('HMGET', D .. letter, F.letter_queue, F.parent)
  if revived[letter] then
    revived[letter] = nil  -- with its parent; a second wish finds nothing
  elseif f.err or f[1] ~= QUEUE then
    refused[#refused + 1] = {letter, false}
  elseif call('EXISTS', P .. id) == 1 then
    refused[#refused + 1] = {letter, state_of(id) or 'waiting'}
  else
    longest = longest or know_queue(ARGV[4])
    revive(letter, P, id, ARGV[i + 2] == '1' and ARGV[i + 3], ARGV[i + 4] ~= '' and ARGV[i + 4])
    rejoin(id, f[2])
  end
end
if longest then
  trim_events(longest)
  mark_ready()
end
local answer = {done, {}, refused}
remember(answer)
return answer
