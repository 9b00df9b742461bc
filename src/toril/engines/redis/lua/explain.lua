-- What a job has to wait for.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now; the job, `1` where priorities go first; the claimer's rate: max, ms, window
-- Returns now, how many go first, ids that run now, until when the rate is used up, of one who waits for children these,
--         of its group see below, 1 if it has stalled and has to run alone, or does
-- Events  none
-- uses groups rates parents
local id, ahead = ARGV[2], 0
-- Those that have stalled stand at the front of the line, but are claimed apart, in their order.
local waiting = call('LLEN', P .. K.wait) - call('ZCARD', P .. K.suspects)
local rank = call('ZRANK', P .. K.prioritized, id)
local place = not rank and call('LPOS', P .. K.wait, id, 'RANK', -1)
if rank then ahead = rank + (ARGV[3] == '1' and 0 or math.max(0, waiting)) end
if place then
  ahead = math.max(0, waiting - 1 - place) + (ARGV[3] == '1' and call('ZCARD', P .. K.prioritized) or 0)
end

local apart = call('ZRANK', P .. K.suspects, id)
if apart then ahead = apart end
local function runs_alone()
  return call('ZSCORE', P .. K.deadlines, id) and (call('HGET', P .. id, F.held) or ''):match('^%d+ 1 ')
end

local meta = call('HMGET', P .. K.meta, F.rate_max, F.rate_ms)
rates.choose(meta[1], meta[2], call('HGET', P .. K.toril, F.window), ARGV[4], ARGV[5], ARGV[6])
local left, till = rates.left()

-- What its group keeps the job from: whether it is admitted, how many of its group go first, who has seats.
local function of_group()
  local f = groups.used() and call('HMGET', P .. id, F.group, F.order, F.priority)
  if not f or not f[1] then return false end
  local name, row, held = f[1], groups.row(f[1]), {}
  for _, seat in ipairs(call('ZRANGEBYLEX', P .. K.seats, '[' .. name .. '\1', '(' .. name .. '\3', 'LIMIT', 0, 10)) do
    held[#held + 1] = seat:sub(#name + 2)
  end
  local first, parked = groups.get(name).first, groups.is_parked(id)
  local before = parked and call('ZLEXCOUNT', P .. K.parked, first, '(' .. groups.member(name, f[2], f[3], '', '')) or 0
  return {row, parked and 0 or 1, before, held}
end
local family = call('ZSCORE', P .. K.waiting_children, id) and parents.child_counts(P .. id, 10)
return {now, ahead, call('LRANGE', P .. K.active, 0, 9), left == 0 and till, family or false, of_group(),
  (apart or runs_alone()) and 1 or 0}
