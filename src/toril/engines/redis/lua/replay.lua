-- Move dead letters back into the queue that they came from, as jobs that have tried nothing yet.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; the queue's name; for each of them its id, job, `1` if there is a payload, the payload, options
--         or nothing
-- Returns those done, dead children of those among them, nothing, {id, state} of those refused
-- Events  waiting, waiting-children
-- uses calls events queue places parents dead_letters replay
local before = calls.recall()
if before then return before end
local mistake = context.wrong('list', K.wait, K.active) or context.wrong('zset', K.prioritized, K.marker, K.results_till)
  or context.wrong('hash', K.meta, K.toril, K.results) or context.wrong('stream', K.events)
  or context.wrong('string', K.pc, K.id)
if mistake then return mistake end

local refused, longest = {}, nil
for i = 5, #ARGV, 5 do
  local letter, id = ARGV[i], ARGV[i + 1]
  local f = redis.pcall('HMGET', dead_letters.base .. letter, F.letter_queue, F.parent)
  if replay.with_parent[letter] then
    replay.with_parent[letter] = nil  -- a second request finds nothing
  elseif f.err or f[1] ~= dead_letters.queue_name then
    refused[#refused + 1] = {letter, false}
  elseif call('EXISTS', P .. id) == 1 then
    refused[#refused + 1] = {letter, places.state(id) or 'waiting'}
  else
    longest = longest or queue.register(ARGV[4])
    replay.letter(letter, P, id, ARGV[i + 2] == '1' and ARGV[i + 3], ARGV[i + 4] ~= '' and ARGV[i + 4])
    parents.rejoin(id, f[2])
  end
end
if longest then
  events.trim(longest)
  places.mark_ready()
end
local answer = {replay.done, {}, refused}
calls.remember(answer)
return answer
