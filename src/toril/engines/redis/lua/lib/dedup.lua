-- include kinship
-- include storing
-- include states
-- include jobs
-- include marks
-- Keys of which one job at a time is the owner. `de:<key>` names it, for a time or until it ends; `dn:<key>` is a job to be
-- made when it ends. Where the clock is not the server's, the time is written beside.
local function key_of(key) return P .. K.dedup .. ':' .. key end
local function next_of(key) return P .. K.dedup_next .. ':' .. key end

local function take_key(key, id, ttl)
  if ttl then call('SET', key_of(key), id, 'PX', ttl + slack) else call('SET', key_of(key), id) end
  if slack > 0 and ttl then call('HSET', P .. K.toril, 'de:' .. key, now + ttl) end
  if slack > 0 and not ttl then call('HDEL', P .. K.toril, 'de:' .. key) end
end

-- A job that has been removed owns nothing any more, and is no one's child.
local function disown(id)
  local f = call('HMGET', P .. id, F.dedup, F.parent)
  local key = f[1]
  if f[2] then told[#told + 1] = {P .. id, f[2], 'removed'} end
  if key and call('GET', key_of(key)) == id then call('DEL', key_of(key), next_of(key)) end
end

-- BullMQ's own workers know of no due time. They count the delay that stands in the options from when they store the job:
-- with the time that is left until it is due it comes later than that, by as long as its owner ran on, and never earlier.
local function keep_due(key, options, due)
  local delay = string.format('{"delay":%.0f,', math.max(0, tonumber(due) - now))
  call('HSET', next_of(key), F.ready, due, F.opts, delay .. options:sub(2))
end

-- A job that has ended lets go of a key that it owns until then, to the job that was kept for this moment.
local function let_go(key, id)
  if call('GET', key_of(key)) ~= id or call('PTTL', key_of(key)) ~= -1 then return end
  call('DEL', key_of(key))
  local f = call('HMGET', next_of(key), F.name, F.data, F.opts, 'jid', F.expires, F.metadata, F.group, F.ready)
  call('DEL', next_of(key))
  if not f[1] or not f[4] or call('EXISTS', P .. f[4]) == 1 then return end
  if f[3] and f[8] then f[3] = f[3]:gsub('^{"delay":%d+,', '{', 1) end  -- see keep_due
  local options = options_of(f[3])
  take_key(key, f[4])
  store(f[4], nil, f[1], f[2] or '{}', f[3] or '{}', as_number(options.delay) or 0, as_number(f[8]) or '',
    as_number(options.priority, N.lowest_priority) or 0, options.lifo and '1' or '', as_number(f[5]) or '', f[6] or '', key, nil, nil, f[7])
  mark_due()
end

-- Who owns a key. An owner that is gone without having ended has let go of it.
local function owner_of(key)
  local owner = call('GET', key_of(key))
  if not owner then return nil end
  local till = slack > 0 and tonumber(call('HGET', P .. K.toril, 'de:' .. key) or nil)
  if till and till <= now then
    call('DEL', key_of(key), next_of(key))
    return nil
  elseif call('PTTL', key_of(key)) == -1 and call('EXISTS', P .. owner) == 0 then
    let_go(key, owner)
    return call('GET', key_of(key)) or nil
  end
  return owner
end

-- The owner is asked for once more: what that does to it, or to its key. True if a new job is to take its place.
local REPEATED = {}
function REPEATED.drop() end
function REPEATED.extend(key, owner, ttl) take_key(key, owner, ttl) end
function REPEATED.replace(_, owner, _, state)
  if state ~= 'delayed' then return false end
  leave(owner, state)
  forget(owner)
  flush_gone()
  event('removed', 'jobId', owner, 'prev', 'delayed')
  return true
end
