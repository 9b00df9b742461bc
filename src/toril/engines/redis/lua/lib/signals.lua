-- Signals: those that a job has not read, those kept by key for which no job waits yet, and who waits for a key.
-- needs steps
-- A signal that a job has not read is {number, name, key or '', id or '', at, payload}; one that is kept by key has, after
-- these, until when. Numbers are the queue's, so that they say which came first.
local signals = {}

function signals.list(key, field)
  local text = call('HGET', key, field)
  return text and cmsgpack.unpack(text) or {}
end

function signals.save(key, field, list)
  if #list == 0 then call('HDEL', key, field) else call('HSET', key, field, cmsgpack.pack(list)) end
end

-- By what the queue knows a signal of this key.
function signals.name_of(name, key) return name .. '\0' .. key end

-- Whether a job waits for a signal: it is there, has not ended, and says so itself.
function signals.is_awaited_by(id, wanted)
  local f = redis.pcall('HMGET', P .. id, F.awaits, F.finished_at)
  if f.err or not f[1] or f[2] then return false end
  for _, each in ipairs(cmsgpack.unpack(f[1])) do
    if each == wanted then return true end
  end
  return false
end

-- The job that waits for a signal by this key.
function signals.waiter(wanted)
  local id = call('HGET', P .. K.awaited, wanted)
  return id and signals.is_awaited_by(id, wanted) and id or nil
end

-- From now on signals by these keys go to this job; false if one of them goes to another. `waits` are {name, key or ''}.
function signals.await(id, waits)
  local fresh, mine = {}, nil
  for i = 1, #waits do
    local wanted = signals.name_of(waits[i][1], waits[i][2])
    if waits[i][2] ~= '' then
      local other = signals.waiter(wanted)
      if other and other ~= id then return false end
      if not other then fresh[#fresh + 1] = wanted end
    end
  end
  if #fresh == 0 then return true end
  steps.start_using()
  mine = signals.list(P .. id, F.awaits)
  for i = 1, #fresh do
    call('HSET', P .. K.awaited, fresh[i], id)
    mine[#mine + 1] = fresh[i]
  end
  signals.save(P .. id, F.awaits, mine)
  return true
end

-- They go to this job no more: those that `is_over` says, or all.
function signals.stop_awaiting(id, is_over)
  local mine, left = signals.list(P .. id, F.awaits), {}
  for i = 1, #mine do
    if is_over and not is_over[mine[i]] then
      left[#left + 1] = mine[i]
    elseif call('HGET', P .. K.awaited, mine[i]) == id then
      call('HDEL', P .. K.awaited, mine[i])
    end
  end
  if #left < #mine then signals.save(P .. id, F.awaits, left) end
end

-- A job ends, or leaves: it waits for nothing any more, and does not rest.
function signals.leave(id)
  if not steps.used() then return end
  steps.stop_resting(id)
  signals.stop_awaiting(id)
end

-- The signals of a key that are kept, without those whose time is over.
function signals.kept(wanted)
  local found = {}
  for _, each in ipairs(signals.list(P .. K.kept_signals, wanted)) do
    if each[7] > now then found[#found + 1] = each end
  end
  return found
end

-- Forget kept signals that `is_over` says of; those of a key stand together.
function signals.drop_kept(wanted, is_over)
  local left, gone = {}, 0
  for _, each in ipairs(signals.list(P .. K.kept_signals, wanted)) do
    if is_over(each) then
      gone = gone + 1
      call('ZREM', P .. K.kept_till, wanted .. '\0' .. string.format('%.0f', each[1]))
      call('HINCRBY', P .. K.toril, F.kept_bytes, -#each[6])
    else
      left[#left + 1] = each
    end
  end
  if gone > 0 then signals.save(P .. K.kept_signals, wanted, left) end
  return gone
end

-- Which signals were sent by a key, to know a second one by: also when they have been read.
function signals.was_sent(wanted, id)
  local till = call('ZSCORE', P .. K.sent_till, wanted .. '\0' .. id)
  return till and tonumber(till) > now
end

function signals.forget_sent(members)
  for i = 1, #members do
    call('ZREM', P .. K.sent_ids, members[i])
    call('ZREM', P .. K.sent_till, members[i])
  end
  return #members
end

-- Of all of the queue the newest are remembered.
function signals.remember_sent(wanted, id, till)
  local member, last = wanted .. '\0' .. id, call('ZREVRANGE', P .. K.sent_ids, 0, 0, 'WITHSCORES')[2]
  local order = (tonumber(last) or 0) + 1
  call('ZADD', P .. K.sent_ids, order, member)
  call('ZADD', P .. K.sent_till, string.format('%.0f', till), member)
  signals.forget_sent(call('ZRANGEBYSCORE', P .. K.sent_ids, '-inf', order - N.sent_ids))
end

-- They leave with the queue, in their order: of each its signal, key, id, and until when it is known.
function signals.take_sent()
  local found = {}
  for _, member in ipairs(call('ZRANGE', P .. K.sent_ids, 0, -1)) do
    local till = tonumber(call('ZSCORE', P .. K.sent_till, member) or 0)
    local name, key, id = member:match('^(%Z*)%z(%Z*)%z(%Z*)$')
    if till > now then found[#found + 1] = {name, key, id, till} end
  end
  call('DEL', P .. K.sent_ids, P .. K.sent_till)
  return found
end

function signals.drop_old(limit)
  local gone = signals.forget_sent(call('ZRANGEBYSCORE', P .. K.sent_till, '-inf', now, 'LIMIT', 0, limit))
  for _, member in ipairs(call('ZRANGEBYSCORE', P .. K.kept_till, '-inf', now, 'LIMIT', 0, limit)) do
    gone = gone + signals.drop_kept(member:match('^(.*)%z%d+$'), function(each) return each[7] <= now end)
    call('ZREM', P .. K.kept_till, member)
  end
  return gone
end

-- Keep a signal for the job that will wait for its key; false if there is no room.
function signals.keep(signal)
  if call('ZCARD', P .. K.kept_till) >= N.kept_signals then signals.drop_old(N.trimmed) end
  local bytes = tonumber(call('HGET', P .. K.toril, F.kept_bytes) or nil) or 0
  if bytes + #signal[6] > N.kept_signal_bytes then
    signals.drop_old(N.trimmed)
    bytes = tonumber(call('HGET', P .. K.toril, F.kept_bytes) or nil) or 0
  end
  if call('ZCARD', P .. K.kept_till) >= N.kept_signals or bytes + #signal[6] > N.kept_signal_bytes then return false end
  local wanted = signals.name_of(signal[2], signal[3])
  local list = signals.list(P .. K.kept_signals, wanted)
  list[#list + 1] = signal
  signals.save(P .. K.kept_signals, wanted, list)
  call('ZADD', P .. K.kept_till, string.format('%.0f', signal[7]), wanted .. '\0' .. string.format('%.0f', signal[1]))
  call('HINCRBY', P .. K.toril, F.kept_bytes, #signal[6])
  return true
end

-- The oldest of these signals that a job can read, and the name of those it is kept with, if it is not in the inbox.
function signals.oldest(id, waits)
  local inbox, best, from = signals.list(P .. id, F.inbox), nil, nil
  local function consider(signal, wanted)
    local older = not best or signal[5] < best[5]
    if best and signal[5] == best[5] then
      older = (wanted and not from) or ((wanted ~= nil) == (from ~= nil) and signal[1] < best[1])
    end
    if older then best, from = signal, wanted end
  end
  for i = 1, #waits do
    local name, key = waits[i][1], waits[i][2]
    local wanted = signals.name_of(name, key)
    local kept = key ~= '' and signals.kept(wanted)[1]
    if kept then
      consider(kept, wanted)
    else
      for j = 1, #inbox do
        if inbox[j][2] == name and inbox[j][3] == key then
          consider(inbox[j])
          break
        end
      end
    end
  end
  return best, from
end

-- A job has read a signal: it is gone, and its id remembered.
function signals.take(id, signal, wanted)
  local function is_it(each) return each[1] == signal[1] end
  if wanted then
    signals.drop_kept(wanted, is_it)
  else
    local left = {}
    for _, each in ipairs(signals.list(P .. id, F.inbox)) do
      if not is_it(each) then left[#left + 1] = each end
    end
    signals.save(P .. id, F.inbox, left)
  end
  if signal[4] == '' then return end
  local ids = signals.list(P .. id, F.signal_ids)
  ids[#ids + 1] = signal[4]
  if #ids > N.signal_ids then table.remove(ids, 1) end
  signals.save(P .. id, F.signal_ids, ids)
end

-- Whether a signal of this id is among some, or was read.
function signals.is_known(id, list, ids)
  for i = 1, #list do if list[i][4] == id then return true end end
  for i = 1, #ids do if ids[i] == id then return true end end
  return false
end

-- All that are kept leave with the queue, in their order.
function signals.take_kept()
  local all, found = call('HGETALL', P .. K.kept_signals), {}
  for i = 2, #all, 2 do
    for _, each in ipairs(cmsgpack.unpack(all[i])) do
      if each[7] > now then found[#found + 1] = each end
    end
  end
  table.sort(found, function(one, other) return one[1] < other[1] end)
  if #all > 0 then
    call('DEL', P .. K.kept_signals, P .. K.kept_till)
    call('HDEL', P .. K.toril, F.kept_bytes)
  end
  return found
end
