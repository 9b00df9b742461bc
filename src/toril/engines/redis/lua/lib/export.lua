-- Exports jobs, dead letters and other data: takes them out completely, and keeps them until the import is confirmed.
-- needs jobs groups places parents dead_letters schedules steps signals
-- One batch is under way at a time, and numbered. ARGV[3] is the store it is for, [4] a mark for a new one, [5] how many
-- may leave. `settled` are those taken, or known to stay.
local export = {progress = W .. G.moving, items = {}, taken = 0, most = tonumber(ARGV[5]), settled = {}}
local BATCH, HOME = W .. G.van, P
local from_wait, bytes, held_up = {}, 0, {}

-- The batch in transit: number, mark, items, now.
function export.batch()
  local f, items = call('HMGET', export.progress, 'number', 'mark'), call('LRANGE', BATCH, 0, -1)
  for i = 1, #items do items[i] = cmsgpack.unpack(items[i]) end
  return {tonumber(f[1]), f[2], items, now}
end

-- The batch in transit, if there is one; an error reply if it is for another store.
function export.under_way()
  local f = call('HMGET', export.progress, 'under_way', 'to')
  if not f[1] then return nil end
  return f[2] == ARGV[3] and export.batch() or redis.error_reply('TORILMOVING to another')
end

-- Keep these as the batch in transit.
function export.send(items)
  if #items == 0 then return false end
  call('HINCRBY', export.progress, 'number', 1)
  call('HSET', export.progress, 'mark', ARGV[4], 'to', ARGV[3], 'under_way', 1)
  for i = 1, #items do call('RPUSH', BATCH, cmsgpack.pack(items[i])) end
  return export.batch()
end

-- Current runs of schedules, and those started last, leave with these.
function export.is_run(id)
  local schedule = id:match('^repeat:(.+):%d+$')
  return schedule and (call('HGET', schedules.own, 'last:' .. schedule) == id or schedules.is_current_run(id))
end

-- The place of a job, found without walking a long list.
function export.standing(id)
  if call('EXISTS', P .. id) == 0 then return nil end
  for i = 1, #places.sets do
    local score = call('ZSCORE', P .. places.sets[i][1], id)
    if score then return places.sets[i][2], score end
  end
  if call('EXISTS', P .. id .. K.lock) == 1 or call('ZSCORE', P .. K.deadlines, id) or call('LPOS', P .. K.active, id) then
    return 'active'
  end
  return 'waiting'
end

-- What a job knows of its children: open, returned, failed and ignored, failed.
function export.children(key)
  if call('EXISTS', key .. K.dependencies, key .. K.processed, key .. K.child_failures, key .. K.unsuccessful) == 0 then return false end
  return {
    call('SMEMBERS', key .. K.dependencies), call('HGETALL', key .. K.processed), call('HGETALL', key .. K.child_failures),
    call('ZRANGE', key .. K.unsuccessful, 0, -1),
  }
end

-- Give up a job's key, and return the key, until when it is owned, and the next job.
function export.held_key(id, key)
  local owned, following = P .. K.dedup .. (key or ''), P .. K.dedup_next .. (key or '')
  if not key or call('GET', owned) ~= id then return false end
  local left, till = call('PTTL', owned), call('HGET', P .. K.toril, 'de:' .. key)
  if not till and left > 0 then till = string.format('%.0f', now + left) end
  local held = {key, till, call('HGETALL', following)}
  call('DEL', owned, following)
  call('HDEL', P .. K.toril, 'de:' .. key)
  return held
end

-- Take a complete job out of its place.
function export.take_out(member)
  local id = member.id
  places.switch_queue(member.base)
  local key, suspect = P .. id, call('ZREM', P .. K.suspects, id)
  local fields, logs, owned = call('HGETALL', key), call('LRANGE', key .. K.logs, 0, -1), call('HGET', key, F.dedup)
  local inbox, signal_ids, was_parked = signals.list(key, F.inbox), signals.list(key, F.signal_ids), false
  signals.leave(id)
  if groups.used() then
    local name, _, stalled = groups.parked_members(id)
    if name and call('ZSCORE', P .. K.parked, stalled) then suspect = 1 end
    was_parked = groups.leave(id)
  end
  if member.state == 'waiting' and not was_parked then
    from_wait[P] = from_wait[P] or {}
    table.insert(from_wait[P], id)
  end
  for i = 1, #places.sets do
    if places.sets[i][2] == member.state then call('ZREM', P .. places.sets[i][1], id) end
  end
  call('ZREM', P .. K.ages, id)
  export.items[#export.items + 1] = {'job', P:sub(#PREFIX + 1, -2), id, member.state, member.score or false, suspect, fields, logs,
    export.children(key), export.held_key(id, owned), inbox, signal_ids}
  for i = 2, #fields, 2 do bytes = bytes + #fields[i] end
  jobs.delete(id)
end

-- Take a complete dead letter.
function export.take_dead_letter(letter)
  local base = P
  P = dead_letters.base
  local row = dead_letters.row(letter, call('ZSCORE', P .. K.letters, letter))
  if row then
    local logs, rows = call('LRANGE', P .. letter .. K.logs, 0, -1), steps.all(P .. letter)
    local f = call('HMGET', P .. letter, F.errors, F.children, F.steps, F.reruns)
    export.items[#export.items + 1] = {'letter', row, export.children(P .. letter), logs, f[1], f[2], f[3], f[4], rows,
      signals.list(P .. letter, F.inbox), signals.list(P .. letter, F.signal_ids)}
    bytes, export.taken = bytes + #row[3], export.taken + 1
    for i = 1, #rows do bytes = bytes + #rows[i][3] end
    for i = 1, #logs do bytes = bytes + #logs[i] end
    call('LREM', P .. K.wait, -1, letter)
    call('ZREM', P .. K.letters, letter)
    jobs.delete(letter)
  end
  P = base
end

function export.is_full() return export.taken >= export.most or bytes >= N.page end

-- Nothing leaves while something runs if otherwise more could run at once than allowed, or out of order.
function export.is_held_up()
  if held_up[P] == nil then
    held_up[P] = call('LLEN', P .. K.active) > 0 and (groups.used() or call('HEXISTS', P .. K.meta, F.concurrency) == 1)
  end
  return held_up[P]
end

-- Its children and its parent are next; false if it stays.
function export.look(member, ahead, with_runs)
  local key, ended = P .. member.id, member.state == 'completed' or member.state == 'failed'
  if export.settled[key] or member.state == 'active' then return false end
  if not ended and (export.is_held_up() or (not with_runs and export.is_run(member.id))) then return false end
  local link = not ended and parents.link(call('HGET', key, F.parent))
  if link and call('EXISTS', link.key) == 1 and call('SISMEMBER', link.key .. K.dependencies, key) == 1 then
    ahead[#ahead + 1] = {link.base, link.id}
  end
  for _, child in ipairs(call('SMEMBERS', key .. K.dependencies)) do
    local name, child_id = child:sub(#PREFIX + 1):match('^([^:]+):(.+)$')
    if child == key .. K.hold then return false end
    if name then ahead[#ahead + 1] = {PREFIX .. name .. ':', child_id} end
  end
  return true
end

-- Take a job with its parents and children. False: they stay.
function export.take(base, id, with_runs)
  local members, seen, ahead, letters, stays = {}, {}, {{base, id}}, {}, false
  while #ahead > 0 and not stays do
    local place = table.remove(ahead)
    local key = place[1] .. place[2]
    if not seen[key] then
      seen[key] = true
      places.switch_queue(place[1])
      local member = {base = place[1], id = place[2]}
      member.state, member.score = export.standing(member.id)
      if member.state then
        members[#members + 1], stays = member, not export.look(member, ahead, with_runs)
      else
        local _, letter = parents.dead_letter_key(key)
        letters[#letters + 1] = letter
      end
    end
  end
  for key in pairs(seen) do export.settled[key] = true end
  if stays then return false end
  for i = 1, #members do export.take_out(members[i]) end
  for i = 1, #letters do export.take_dead_letter(letters[i]) end
  export.taken = export.taken + #members
  places.switch_queue(HOME)
  return true
end

-- What was taken out of `wait` goes at once: from its next end where they stand there, else out of the whole list.
function export.leave_list(base, ids)
  local leaving, left, size = {}, #ids, #ids + 1000
  for i = 1, #ids do leaving[ids[i]] = true end
  repeat
    local stretch, stays, found = call('LRANGE', base .. K.wait, -size, -1), {}, 0
    for i = 1, #stretch do
      if leaving[stretch[i]] then found = found + 1 else stays[#stays + 1] = stretch[i] end
    end
    local whole = #stretch < size
    if found >= left or whole then
      call('LTRIM', base .. K.wait, 0, -size - 1)
      for first = 1, #stays, 1000 do call('RPUSH', base .. K.wait, unpack(stays, first, math.min(first + 999, #stays))) end
      return
    end
    size = size * 8
  until false
end

-- What remains to be done after all are taken.
function export.flush()
  for base, ids in pairs(from_wait) do export.leave_list(base, ids) end
  places.switch_queue(HOME)
  jobs.flush_deleted()
  groups.flush()
  places.mark_ready()
end
