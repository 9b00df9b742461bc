-- What living workers declare of a queue.
-- KEYS    nothing, the fleet's base
-- ARGV    now, the queue's name
-- Returns {text, how many declare it, when the last of them did} of each that differs from the others
-- Events  none
-- uses workers
local found, place = {}, {}
for _, worker in ipairs(call('ZRANGEBYSCORE', W .. G.workers_till, '(' .. now, '+inf')) do
  local at, text = (call('HGET', workers.declared_key(worker), ARGV[2]) or ''):match('^(%d+) (.*)$')
  if text then
    if not place[text] then
      found[#found + 1] = {text, 0, 0}
      place[text] = #found
    end
    local each = found[place[text]]
    each[2], each[3] = each[2] + 1, math.max(each[3], tonumber(at))
  end
end
return found
