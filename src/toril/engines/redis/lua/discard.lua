-- Delete dead letters for good.
-- KEYS    the dead letters' base, the fleet's base
-- ARGV    now, sender, number; ids
-- Returns ids done, nothing, {id, false} of those that are none
-- Events  none
-- uses calls parents dead_letters
local before = calls.recall()
if before then return before end
local done, refused = {}, {}
for i = 4, #ARGV do
  local letter = ARGV[i]
  if call('ZREM', P .. K.letters, letter) == 1 then
    call('LREM', P .. K.wait, -1, letter)
    local f = call('HMGET', P .. letter, F.parent, F.letter_queue, F.letter_job)
    if f[1] and f[2] and f[3] then parents.child_ended(PREFIX .. f[2] .. ':' .. f[3], f[1], 'removed') end
    call('DEL', P .. letter)
    dead_letters.delete_details(P .. letter)
    done[#done + 1] = letter
  else
    refused[#refused + 1] = {letter, false}
  end
end
local answer = {done, {}, refused}
calls.remember(answer)
return answer
