-- include parents
-- Parents are told at the end of a step, so that whom it lets go on is not met again by the step itself.
local function flush_told()
  local list = told
  told = {}
  for i = 1, #list do tell_parent(unpack(list[i], 1, 5)) end
end

-- What a job's children returned, or why they failed, goes where the job goes.
local function move_kin(from, to)
  for _, name in ipairs({K.processed, K.child_failures}) do
    if call('EXISTS', from .. name) == 1 then call('RENAME', from .. name, to .. name) end
  end
end

-- A child runs again: its parent waits for it once more, if it still waits.
local function rejoin(id, field)
  local link = field and link_of(field)
  if not link or not try('ZSCORE', link.base .. K.waiting_children, link.id) then return end
  try('HDEL', link.key .. K.processed, P .. id)
  try('HDEL', link.key .. K.child_failures, P .. id)
  try('ZREM', link.key .. K.unsuccessful, P .. id)
  try('SADD', link.key .. K.dependencies, P .. id)
end
