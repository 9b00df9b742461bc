-- include kinship
-- Parents and children that run again.

-- A child runs again: its parent waits for it once more, if it still waits or will when it is replayed.
local function rejoin(id, field)
  local link = field and link_of(field)
  if not link then return end
  local key = link.key
  if not try('ZSCORE', link.base .. K.waiting_children, link.id) then
    key = letter_key(link.key)
    if try('EXISTS', link.key) == 1 or try('EXISTS', key) == 0 then return end
  end
  try('HDEL', key .. K.processed, P .. id)
  try('HDEL', key .. K.child_failures, P .. id)
  try('ZREM', key .. K.unsuccessful, P .. id)
  try('SADD', key .. K.dependencies, P .. id)
end

-- A parent that failed for its children runs once more without them, and knows that they failed.
local function forgive(key)
  for _, child in ipairs(call('ZRANGE', key .. K.unsuccessful, 0, -1)) do
    call('HSET', key .. K.child_failures, child, 'it failed, and its parent was retried alone')
  end
  call('DEL', key .. K.unsuccessful)
end
