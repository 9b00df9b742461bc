-- include events
-- Plain jobs, those of a name and options behind one another: without an id, a time, a priority or whatever else of their own, they go to the end of the line.
local function store_plain(number, longest)
  local ids, at, i = {}, 7, 0
  while i < count do
    local name, options, many = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
    for offset = 3, many + 2 do
      i = i + 1
      local id = string.format('%d', number + i)
      ids[i] = id
      -- The last two are said twice: a hash moves to a larger table with its fifth field, a part at each look into it, and
      -- would keep the old one, of 32 bytes, for as long as the job waits.
      call('HSET', P .. id, F.name, name, F.data, ARGV[at + offset], F.opts, options, F.added_at, NOW, F.delay, '0', F.priority, '0',
        F.delay, '0', F.priority, '0')
      call('XADD', EVENTS, '*', 'event', 'added', 'jobId', id, 'name', name)
      if i < count then call('XADD', EVENTS, '*', 'event', 'waiting', 'jobId', id) end
    end
    at = at + many + 3
  end
  call('XADD', EVENTS, 'MAXLEN', '~', longest_of(longest), '*', 'event', 'waiting', 'jobId', ids[count])
  call('LPUSH', P .. K.wait, unpack(ids))
end

-- The short way for a queue that is known, and has neither limits nor groups: it does what the rest of the script would do,
-- and needs none of its functions. Nothing is written if it is not sure.
local function plainly()
  local meta = redis.pcall('HMGET', P .. K.meta, F.max_events, F.is_paused, F.concurrency)
  local own = redis.pcall('HMGET', P .. K.toril, F.max_waiting, F.grouped)
  if not meta[1] or meta[2] or meta[3] or own.err or own[1] or own[2] then return end
  local marked = redis.pcall('ZSCORE', P .. K.marker, '0')
  if type(redis.pcall('GET', P .. K.id)) ~= 'string' or type(marked) == 'table' then return end
  if not fits('LLEN', K.wait) or not fits('XLEN', K.events) then return end
  local number = call('INCRBY', P .. K.id, count) - count
  store_plain(number, meta[1])
  if not marked then call('ZADD', P .. K.marker, '0', '0') end
  remember(number + 1)
  return number + 1
end
