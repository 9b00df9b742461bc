-- Runs failed jobs again: those that were kept, and dead letters.
-- needs events places parents dead_letters steps
-- A parent has its children that have not succeeded run again with it, in whatever queue they are, and waits for them.
-- `done` has the dead letters that are jobs again, in order; `with_parent` the keys of kept jobs, and the dead letters,
-- that came along.
local replay = {done = {}, with_parent = {}}

-- A number that the queue has not given out yet, since it is another queue by now, is given out.
function replay.count_up_to(base, id)
  local number = id:match('^[1-9]%d*$') and #id < 16 and tonumber(id)
  if number and number > (tonumber(try('GET', base .. K.id)) or 0) then try('SET', base .. K.id, id) end
end

-- Into the line of its queue; of another queue than this one to the front, as parents go that were waited for.
function replay.into_line(base, id, waits)
  if waits then
    try('ZADD', base .. K.waiting_children, NOW, id)
    try('XADD', base .. K.events, '*', 'event', 'waiting-children', 'jobId', id, 'prev', 'failed')
  elseif base == P then
    places.to_back(id, context.number(call('HGET', P .. id, F.priority), N.lowest_priority) or 0)
    events.add('waiting', 'jobId', id, 'prev', 'failed')
  elseif try('ZADD', base .. K.waiting_children, NOW, id) then
    parents.release_from({base = base, id = id, key = base .. id}, K.waiting_children, 'failed')
  end
end

function replay.stands_in(key, id) return type(try('ZSCORE', key, id)) == 'string' end

-- Fields of the last run that the next one must not have.
function replay.reset(key)
  call('HDEL', key, F.finished_at, F.started_at, F.reason, F.result, F.attempts_made, F.attempts_made_old, F.stalls,
    F.trace, F.errors, F.kind, F.stall_cause, F.progress, F.expires, F.waited, F.worker, F.deferred, F.cancelling)
  call('HSET', key, F.delay, 0)
end

-- Whether jobs can be put into a queue's line: none of its keys has a wrong type.
function replay.takes_jobs(base)
  for name, kind in pairs({[K.wait] = 'list', [K.prioritized] = 'zset', [K.delayed] = 'zset', [K.waiting_children] = 'zset'}) do
    local found = call('TYPE', base .. name).ok
    if found ~= 'none' and found ~= kind then return false end
  end
  return true
end

function replay.child(child)
  local name, id = child:sub(#PREFIX + 1):match('^([^:]*):(.*)$')
  if not name or not replay.takes_jobs(PREFIX .. name .. ':') then return 'gone' end
  local base, dead, letter = PREFIX .. name .. ':', parents.dead_letter_key(child)
  local kind = call('TYPE', child).ok
  if kind ~= 'none' then
    if kind ~= 'hash' then return 'gone' end
    if replay.stands_in(base .. K.completed, id) then return 'completed', call('HGET', child, F.result) end
    if replay.stands_in(base .. K.failed, id) then
      try('ZREM', base .. K.failed, id)
      try('ZREM', base .. K.ages, id)
      replay.reset(child)
      steps.run_again(child)
      replay.with_parent[child] = true
      replay.into_line(base, id, replay.children(child))
    end
    return 'open'
  end
  if not dead_letters.can_add() or not replay.stands_in(dead_letters.base .. K.letters, letter) then return 'gone' end
  if call('TYPE', dead).ok ~= 'hash' then return 'gone' end
  replay.letter(letter, base, id)
  replay.with_parent[letter] = true
  return 'open'
end

-- Children that have not succeeded run again, of a parent that is at `key`; whether there are any to wait for.
function replay.children(key)
  call('SREM', key .. K.dependencies, key .. K.hold)
  local children = call('ZRANGE', key .. K.unsuccessful, 0, -1)
  for _, child in ipairs(call('SMEMBERS', key .. K.dependencies)) do children[#children + 1] = child end
  for _, child in ipairs(children) do
    local becomes, result = replay.child(child)
    call('ZREM', key .. K.unsuccessful, child)
    call(becomes == 'open' and 'SADD' or 'SREM', key .. K.dependencies, child)
    if becomes == 'completed' then call('HSET', key .. K.processed, child, result or 'null') end
    if becomes == 'gone' then
      call('HSET', key .. K.child_failures, child, 'it failed, and nothing is left of it to run again')
    end
  end
  return call('SCARD', key .. K.dependencies) > 0
end

function replay.letter(letter, base, id, data, options)
  local from, to = dead_letters.base .. letter, base .. id
  call('ZREM', dead_letters.base .. K.letters, letter)
  call('LREM', dead_letters.base .. K.wait, -1, letter)
  local f = call('HMGET', from, F.data, F.letter_head, F.letter_data, F.parked)
  local waits = f[4] and replay.children(from)
  call('RENAME', from, to)
  call('HSET', to, F.data, data or dead_letters.own_data(f[1] or '', f[2], f[3]), F.delay, 0, F.ready, NOW)
  if options then call('HSET', to, F.opts, options) end
  steps.run_again(to)
  call('HDEL', to, F.finished_at, F.started_at, F.reason, F.result, F.attempts_made, F.attempts_made_old, F.stalls,
    F.starts, F.held, F.trace, F.errors, F.kind, F.stall_cause, F.progress, F.waited, F.worker, F.letter_queue, F.letter_job,
    F.letter_cause, F.letter_head, F.letter_data, F.dedup)
  try('HDEL', base .. K.results, id)
  try('ZREM', base .. K.results_till, id)
  replay.count_up_to(base, id)
  if f[4] then
    call('HSET', to, F.parked, 0)
    parents.move_children(from, to)
  end
  if call('EXISTS', from .. K.logs) == 1 then
    call('RENAME', from .. K.logs, to .. K.logs)
    try('HSETNX', base .. K.toril, F.beside, 1)
  end
  replay.done[#replay.done + 1] = letter
  replay.into_line(base, id, waits)
end
