-- Removes many jobs at once.
-- needs jobs groups dedup signals
local sweep = {ids = {}}
local LISTS_OF = {waiting = {K.wait, K.paused}, prioritized = {K.prioritized}, delayed = {K.delayed}}

function sweep.job(id)
  dedup.disown(id)
  signals.leave(id)
  if groups.used() then groups.leave(id) end
  jobs.delete(id)
  sweep.ids[#sweep.ids + 1] = id
end

-- Empty a list from its next end, except for jobs that stay.
function sweep.list(name, limit, stays)
  local kept = {}
  while #sweep.ids < limit and #kept < N.looked_at do
    local ids = call('RPOP', P .. name, math.min(limit - #sweep.ids, 1000)) or {}
    if #ids == 0 then break end
    for i = 1, #ids do
      if stays(ids[i]) then kept[#kept + 1] = ids[i] else sweep.job(ids[i]) end
    end
    call('ZREM', P .. K.suspects, unpack(ids))
  end
  for i = #kept, 1, -1 do call('RPUSH', P .. name, kept[i]) end
end

-- Empty a sorted set from its beginning, except for jobs that stay.
function sweep.zset(name, limit, stays)
  local first = 0
  while #sweep.ids < limit and first < N.looked_at do
    local ids = call('ZRANGE', P .. name, first, first + math.min(limit - #sweep.ids, 1000) - 1)
    if #ids == 0 then break end
    for i = 1, #ids do
      if stays(ids[i]) then
        first = first + 1
      else
        call('ZREM', P .. name, ids[i])
        sweep.job(ids[i])
      end
    end
  end
end

-- Those of groups that were not admitted.
function sweep.parked(limit, stays)
  local first = 0
  while groups.used() and #sweep.ids < limit and first < N.looked_at do
    local members = call('ZRANGE', P .. K.parked, first, first + math.min(limit - #sweep.ids, 1000) - 1)
    if #members == 0 then return end
    for i = 1, #members do
      local id = groups.job_of(members[i])
      if stays(id) then
        first = first + 1
      else
        call('ZREM', P .. K.parked, members[i])
        sweep.job(id)
      end
    end
  end
end

-- Empty a state of jobs that have not started, except for jobs that stay.
function sweep.state(state, limit, stays)
  for _, name in ipairs(LISTS_OF[state]) do
    local empty = state == 'waiting' and sweep.list or sweep.zset
    empty(name, limit, stays)
  end
  if state == 'waiting' then sweep.parked(limit, stays) end
end
