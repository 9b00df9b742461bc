-- include events
-- include jobs
-- include states
-- include dedup
-- Jobs removed by the many.
local swept = {}

-- The job that a scheduler of BullMQ has made for its next run: without it the scheduler would stop.
local function is_current_run(id)
  local scheduler, time = id:match('^repeat:(.+):(%d+)$')
  local current = scheduler and call('ZSCORE', P .. K.repeat, scheduler)
  return current and tonumber(current) == tonumber(time)
end

local function sweep(id)
  disown(id)
  if groups.used() then groups.leave(id) end
  forget(id)
  swept[#swept + 1] = id
end

-- Empty a list from its next end, but for what is to stay.
local function sweep_list(name, limit, stays)
  local kept = {}
  while #swept < limit and #kept < N.looked_at do
    local ids = call('RPOP', P .. name, math.min(limit - #swept, 1000)) or {}
    if #ids == 0 then break end
    for i = 1, #ids do
      if stays(ids[i]) then kept[#kept + 1] = ids[i] else sweep(ids[i]) end
    end
    call('ZREM', P .. K.suspects, unpack(ids))
  end
  for i = #kept, 1, -1 do call('RPUSH', P .. name, kept[i]) end
end

-- Empty a sorted set from its beginning, but for what is to stay.
local function sweep_zset(name, limit, stays)
  local first = 0
  while #swept < limit and first < N.looked_at do
    local ids = call('ZRANGE', P .. name, first, first + math.min(limit - #swept, 1000) - 1)
    if #ids == 0 then break end
    for i = 1, #ids do
      if stays(ids[i]) then
        first = first + 1
      else
        call('ZREM', P .. name, ids[i])
        sweep(ids[i])
      end
    end
  end
end

-- Those of groups that were not let in.
local function sweep_parked(limit, stays)
  local first = 0
  while groups.used() and #swept < limit and first < N.looked_at do
    local members = call('ZRANGE', P .. K.parked, first, first + math.min(limit - #swept, 1000) - 1)
    if #members == 0 then return end
    for i = 1, #members do
      local id = groups.job_of(members[i])
      if stays(id) then
        first = first + 1
      else
        call('ZREM', P .. K.parked, members[i])
        sweep(id)
      end
    end
  end
end

local LINES = {waiting = {K.wait, K.paused}, prioritized = {K.prioritized}, delayed = {K.delayed}}

local function sweep_state(state, limit, stays)
  for _, name in ipairs(LINES[state]) do
    local empty = state == 'waiting' and sweep_list or sweep_zset
    empty(name, limit, stays)
  end
  if state == 'waiting' then sweep_parked(limit, stays) end
end
