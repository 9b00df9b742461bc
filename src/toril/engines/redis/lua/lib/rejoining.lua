-- include kinship
-- Parents and children that run again.

-- A child runs again: its parent waits for it once more, if it still waits, or will when it runs again itself.
local function rejoin(id, field)
  local link = field and link_of(field)
  if not link then return end
  local key = link.key
  if not try('ZSCORE', link.base .. K.waiting_children, link.id) and not try('ZSCORE', link.base .. K.failed, link.id) then
    key = letter_key(link.key)
    if try('EXISTS', link.key) == 1 or try('EXISTS', key) == 0 then return end
  end
  try('HDEL', key .. K.processed, P .. id)
  try('HDEL', key .. K.child_failures, P .. id)
  try('ZREM', key .. K.unsuccessful, P .. id)
  try('SADD', key .. K.dependencies, P .. id)
end
