-- include events
-- Plain jobs: without an id, a time, a priority or whatever else of their own, they go to the end of the line.
local function store_plain(number, longest)
  local ids = {}
  for i = 1, count do
    local id, at = string.format('%d', number + i), 4 + 3 * i
    ids[i] = id
    call('HSET', P .. id, F.name, ARGV[at], F.data, ARGV[at + 1], F.opts, ARGV[at + 2], F.added_at, NOW, F.delay, '0', F.priority, '0')
    if i == 1 then
      call('XADD', EVENTS, 'MAXLEN', '~', longest_of(longest), '*', 'event', 'added', 'jobId', id, 'name', ARGV[at])
    else
      call('XADD', EVENTS, '*', 'event', 'added', 'jobId', id, 'name', ARGV[at])
    end
    call('XADD', EVENTS, '*', 'event', 'waiting', 'jobId', id)
  end
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
