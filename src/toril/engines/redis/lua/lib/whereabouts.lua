-- include states
-- include parents
-- Current runs of schedules, and those started last, leave with these.
local function is_run(id)
  local schedule, slot = id:match('^repeat:(.+):(%d+)$')
  if not schedule then return false end
  if call('HGET', P .. K.schedules, 'last:' .. schedule) == id then return true end
  local current = call('ZSCORE', P .. K.repeat, schedule)
  return current and tonumber(current) == tonumber(slot)
end

-- Where a job stands, found without walking a long list.
local function standing(id)
  if call('EXISTS', P .. id) == 0 then return nil end
  for i = 1, #ZSETS do
    local score = call('ZSCORE', P .. ZSETS[i][1], id)
    if score then return ZSETS[i][2], score end
  end
  if call('EXISTS', P .. id .. K.lock) == 1 or call('ZSCORE', P .. K.deadlines, id) or call('LPOS', P .. K.active, id) then
    return 'active'
  end
  return 'waiting'
end

local function split(key) return key:sub(#PREFIX + 1):match('^([^:]+):(.+)$') end
