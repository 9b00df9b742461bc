-- Take dead letters, the oldest first, but for those that a parent waits for: they leave with that.
-- KEYS    the base of any queue, the fleet's base
-- ARGV    now, nothing, the store they are for, a mark, how many
-- Returns number, mark, parcels, now; nothing if none can leave
-- Errors  TORILMOVING
-- Events  none
-- include begin
-- include loading
-- include marks
-- include flushing
local before = on_its_way()
if before then return before end

local function is_waited_for(letter)
  local f = call('HMGET', LETTERS .. letter, F.parent, F.letter_queue, F.letter_job)
  local link = link_of(f[1])
  return link and f[3] and call('SISMEMBER', link.key .. K.dependencies, PREFIX .. f[2] .. ':' .. f[3]) == 1
end

for _, letter in ipairs(call('ZRANGE', LETTERS .. K.letters, 0, -1)) do
  if is_full() then break end
  if not is_waited_for(letter) then take_letter(letter) end
end
flush_gone()
return send(parcels)
