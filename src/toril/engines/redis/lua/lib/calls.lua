-- A repeated call gets its first answer, and has no second effect.
-- needs nothing
-- The last answer to each sender is kept. ARGV[2] is the sender, ARGV[3] the call's number.
local calls = {key = W .. G.call .. ARGV[2] .. ':call'}

-- The first answer, if this call had one; an error reply if a later one had.
function calls.recall()
  local last = ARGV[2] ~= '' and call('GET', calls.key)
  if not last then return nil end
  local space = last:find(' ', 1, true)
  local seq, before = tonumber(ARGV[3]), tonumber(last:sub(1, space - 1))
  if before < seq then return nil end
  if before > seq then return redis.error_reply('TORILLATE ' .. before) end
  return cmsgpack.unpack(last:sub(space + 1))
end

-- Keep the answer for when the call is sent again.
function calls.remember(answer)
  if ARGV[2] == '' then return end
  local text = ARGV[3] .. ' ' .. cmsgpack.pack(answer)
  if ARGV[2]:sub(1, #N.lasting) == N.lasting then
    call('SET', calls.key, text)
  else
    call('SET', calls.key, text, 'PX', N.remembered)
  end
end
