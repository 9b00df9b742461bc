-- The last answer to each sender is kept, so that a call sent again has no second effect. ARGV[2] is the sender, ARGV[3]
-- the call's number.
local call_key = W .. G.call .. ARGV[2] .. ':call'

-- The first answer, if this call had one; an error reply if a later one had.
local function recalled()
  local last = ARGV[2] ~= '' and call('GET', call_key)
  if not last then return nil end
  local space = last:find(' ', 1, true)
  local seq, before = tonumber(ARGV[3]), tonumber(last:sub(1, space - 1))
  if before < seq then return nil end
  if before > seq then return nil, redis.error_reply('TORILLATE ' .. before) end
  return cmsgpack.unpack(last:sub(space + 1))
end

local function remember(answer)
  if ARGV[2] == '' then return end
  local text = ARGV[3] .. ' ' .. cmsgpack.pack(answer)
  if ARGV[2]:sub(1, #N.lasting) == N.lasting then
    call('SET', call_key, text)
  else
    call('SET', call_key, text, 'PX', N.remembered)
  end
end
