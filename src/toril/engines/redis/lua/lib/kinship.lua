-- include parents
-- Parents are told at the end of a step, so that whom it lets go on is not met again by the step itself.
local function flush_told()
  local list = told
  told = {}
  for i = 1, #list do tell_parent(unpack(list[i], 1, 5)) end
end

-- What stands beside a dead letter: its log, and what it knows of its children.
local function drop_belongings(key)
  call('DEL', key .. K.logs, key .. K.processed, key .. K.child_failures, key .. K.dependencies, key .. K.unsuccessful)
end

-- What a job knows of its children goes where the job goes; but not what held it back while its flow was added.
local function move_kin(from, to)
  call('SREM', from .. K.dependencies, from .. K.hold)
  for _, name in ipairs({K.processed, K.child_failures, K.dependencies, K.unsuccessful}) do
    if call('EXISTS', from .. name) == 1 then call('RENAME', from .. name, to .. name) end
  end
end
