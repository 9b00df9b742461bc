-- A load from another store: ARGV[2] is that store, [3] the load's number, [4] its mark.
local ARRIVED = W .. G.arrived

-- Whether it has come before, or one after it has.
local function seen_before()
  local last, mark = (call('HGET', ARRIVED, ARGV[2]) or '0 '):match('^(%d+) (.*)$')
  if last == ARGV[3] and mark == ARGV[4] then return 'again' end
  return tonumber(ARGV[3]) <= tonumber(last) and 'stale'
end

local function has_arrived() call('HSET', ARRIVED, ARGV[2], ARGV[3] .. ' ' .. ARGV[4]) end
