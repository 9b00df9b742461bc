-- The last answer to each sender is kept, so that a call sent again has no second effect. ARGV[2] is the sender, ARGV[3]
-- the call's number.
local call_key = W .. G.call .. ARGV[2] .. ':call'

-- The first answer, if this call had one; an error reply if a later one had.
local function recalled()
  local last = ARGV[2] ~= '' and call('GET', call_key)
  if not last then return nil end
  local seq = tonumber(ARGV[3])
  last = cmsgpack.unpack(last)
  if last[1] < seq then return nil end
  if last[1] > seq then return nil, redis.error_reply('TORILLATE ' .. last[1]) end
  return last[2]
end

local function remember(answer)
  if ARGV[2] ~= '' then
    call('SET', call_key, cmsgpack.pack({tonumber(ARGV[3]), answer}), 'PX', N.remembered)
  end
end
