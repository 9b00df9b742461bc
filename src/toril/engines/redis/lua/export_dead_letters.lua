-- Take dead letters, the oldest first, but for those that a parent waits for: they leave with that.
-- KEYS    the base of any queue, the fleet's base
-- ARGV    now, nothing, the store they are for, a mark, how many
-- Returns number, mark, items, now; nothing if none can leave
-- Errors  TORILMOVING
-- Events  none
-- uses jobs parents dead_letters export
local before = export.under_way()
if before then return before end

local function is_waited_for(letter)
  local f = call('HMGET', dead_letters.base .. letter, F.parent, F.letter_queue, F.letter_job)
  local link = parents.link(f[1])
  return link and f[3] and call('SISMEMBER', link.key .. K.dependencies, PREFIX .. f[2] .. ':' .. f[3]) == 1
end

for _, letter in ipairs(call('ZRANGE', dead_letters.base .. K.letters, 0, -1)) do
  if export.is_full() then break end
  if not is_waited_for(letter) then export.take_dead_letter(letter) end
end
jobs.flush_deleted()
return export.send(export.items)
