-- How jobs and letters are taken out of their places, whole.
local parcels, from_wait, taken, bulk = {}, {}, 0, 0
local LETTERS = PREFIX .. N.dead_letters .. ':'

local function pack(parcel)
  parcels[#parcels + 1] = parcel
end

-- What a job knows of its children: open, returned, failed and passed over, failed.
local function kin_of(key)
  if call('EXISTS', key .. K.dependencies, key .. K.processed, key .. K.child_failures, key .. K.unsuccessful) == 0 then return false end
  return {
    call('SMEMBERS', key .. K.dependencies), call('HGETALL', key .. K.processed), call('HGETALL', key .. K.child_failures),
    call('ZRANGE', key .. K.unsuccessful, 0, -1),
  }
end

-- The key that a job owns, until when, and what is made then. It owns it no longer.
local function held_by(id, key)
  local owned, following = P .. K.dedup .. ':' .. (key or ''), P .. K.dedup_next .. ':' .. (key or '')
  if not key or call('GET', owned) ~= id then return false end
  local left, till = call('PTTL', owned), call('HGET', P .. K.toril, 'de:' .. key)
  if not till and left > 0 then till = string.format('%.0f', now + left) end
  local held = {key, till, call('HGETALL', following)}
  call('DEL', owned, following)
  call('HDEL', P .. K.toril, 'de:' .. key)
  return held
end

local function take_out(member)
  local id = member.id
  at(member.base)
  local key, suspect = P .. id, call('ZREM', P .. K.suspects, id)
  local fields, logs, dedup = call('HGETALL', key), call('LRANGE', key .. K.logs, 0, -1), call('HGET', key, F.dedup)
  local was_parked = false
  if groups.used() then
    local name, _, stalled = marks_of(id)
    if name and call('ZSCORE', P .. K.parked, stalled) then suspect = 1 end
    was_parked = groups.leave(id)
  end
  if member.state == 'waiting' and not was_parked then
    from_wait[P] = from_wait[P] or {}
    table.insert(from_wait[P], id)
  end
  for i = 1, #ZSETS do
    if ZSETS[i][2] == member.state then call('ZREM', P .. ZSETS[i][1], id) end
  end
  call('ZREM', P .. K.ages, id)
  pack({'job', P:sub(#PREFIX + 1, -2), id, member.state, member.score or false, suspect, fields, logs, kin_of(key), held_by(id, dedup)})
  for i = 2, #fields, 2 do bulk = bulk + #fields[i] end
  forget(id)
end

local function take_letter(letter)
  local base = P
  P = LETTERS
  local row = letter_row(letter, call('ZSCORE', P .. K.letters, letter))
  if row then
    local logs = call('LRANGE', P .. letter .. K.logs, 0, -1)
    pack({'letter', row, kin_of(P .. letter), logs, unpack(call('HMGET', P .. letter, F.errors, F.children))})
    bulk, taken = bulk + #row[3], taken + 1
    for i = 1, #logs do bulk = bulk + #logs[i] end
    call('LREM', P .. K.wait, -1, letter)
    call('ZREM', P .. K.letters, letter)
    forget(letter)
  end
  P = base
end

local function take_letter_of(queue, id)
  if queue then take_letter(queue .. '/' .. id:gsub('%%', '%%25'):gsub(':', '%%3A')) end
end
