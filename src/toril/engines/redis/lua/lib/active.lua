-- Take many ids out of `active`. Where they are most of it, writing the rest anew is one step instead of many.
local function leave_active(ids, running)
  if #ids < 4 or running > 4 * #ids then
    for i = 1, #ids do call('LREM', P .. K.active, -1, ids[i]) end
    return
  end
  local leaving, left = {}, {}
  for i = 1, #ids do leaving[ids[i]] = true end
  for _, id in ipairs(call('LRANGE', P .. K.active, 0, -1)) do
    if leaving[id] then leaving[id] = nil else left[#left + 1] = id end
  end
  call('DEL', P .. K.active)
  if #left > 0 then call('RPUSH', P .. K.active, unpack(left)) end
end
