-- What was taken out of `wait` goes at once: from its next end where they stand there, else out of the whole list.
local function leave_list(base, ids)
  local leaving, left, size = {}, #ids, #ids + 1000
  for i = 1, #ids do leaving[ids[i]] = true end
  repeat
    local stretch, stays, found = call('LRANGE', base .. K.wait, -size, -1), {}, 0
    for i = 1, #stretch do
      if leaving[stretch[i]] then found = found + 1 else stays[#stays + 1] = stretch[i] end
    end
    local whole = #stretch < size
    if found >= left or whole then
      call('LTRIM', base .. K.wait, 0, -size - 1)
      for first = 1, #stays, 1000 do call('RPUSH', base .. K.wait, unpack(stays, first, math.min(first + 999, #stays))) end
      return
    end
    size = size * 8
  until false
end

local function flush_leaving()
  for base, ids in pairs(from_wait) do leave_list(base, ids) end
  at(HOME)
  flush_gone()
  groups.flush()
  mark_ready()
end
