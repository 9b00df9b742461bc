-- The queue of the dead letters, a paused one of BullMQ's. Another program may have a queue of that name.
local D = W:sub(1, -8) .. N.dead_letters .. ':'
local can_bury

-- Whether that queue is ours; if not, jobs are kept where they are. It is from the first letter on, unless a library of
-- BullMQ's had opened it before: an empty queue of someone's looks like one that a dashboard has opened, so the user has to
-- name it. Nobody adds to ours, so it never gave out a number.
local function may_bury()
  if can_bury ~= nil then return can_bury end
  can_bury = call('EXISTS', D .. K.id) == 0
  for name, kind in pairs({[K.wait] = 'list', [K.meta] = 'hash', [K.letters] = 'zset', [K.toril] = 'hash'}) do
    local found = call('TYPE', D .. name).ok
    if found ~= 'none' and found ~= kind then can_bury = false end
  end
  if can_bury and not N.named_letters and call('HEXISTS', D .. K.toril, F.for_letters) == 0 then
    can_bury = call('EXISTS', D .. K.meta, D .. K.wait) == 0
  end
  return can_bury
end
