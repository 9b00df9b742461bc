-- include turns
-- In which state a job is; nil if there is no such job, or it stands nowhere.
local ZSETS = {
  {K.completed, 'completed'}, {K.failed, 'failed'}, {K.delayed, 'delayed'}, {K.prioritized, 'prioritized'},
  {K.waiting_children, 'waiting_children'},
}

local function state_of(id)
  if call('EXISTS', P .. id) == 0 then return nil end
  if groups.used() and groups.is_parked(id) then return 'waiting' end
  for i = 1, #ZSETS do
    if call('ZSCORE', P .. ZSETS[i][1], id) then return ZSETS[i][2] end
  end
  if call('LPOS', P .. K.active, id) then return 'active' end
  if call('LPOS', P .. K.wait, id, 'RANK', -1) or call('LPOS', P .. K.paused, id) then return 'waiting' end
end

-- Take a job out of where it stands.
local function leave(id, state)
  if groups.used() and groups.leave(id) then return end
  for i = 1, #ZSETS do
    if ZSETS[i][2] == state then call('ZREM', P .. ZSETS[i][1], id) end
  end
  if state == 'waiting' then
    if call('LREM', P .. K.wait, -1, id) == 0 then call('LREM', P .. K.paused, -1, id) end
    call('ZREM', P .. K.suspects, id)
  end
end
