-- Move dead letters back into the queue that they came from, as jobs that have tried nothing yet.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; the queue's name; for each letter id, job, `1` if there is a payload, the payload, options
--         or nothing
-- Returns letters done, dead children of those among them, nothing, {letter, state} of those refused
-- Events  waiting, waiting-children
-- include begin
-- include guard
-- include calls
-- include known
-- include marks
-- include states
-- include replay
local before, late = recalled()
if late then return late end
if before then return before end
local mistake = wrong('list', K.wait, K.active) or wrong('zset', K.prioritized, K.marker, K.results_till)
  or wrong('hash', K.meta, K.toril, K.results) or wrong('stream', K.events) or wrong('string', K.pc, K.id)
if mistake then return mistake end

local refused, longest = {}, nil
for i = 5, #ARGV, 5 do
  local letter, id = ARGV[i], ARGV[i + 1]
  local f = redis.pcall('HMGET', D .. letter, F.letter_queue, F.parent)
  if with_parent[letter] then
    with_parent[letter] = nil  -- a second wish finds nothing
  elseif f.err or f[1] ~= QUEUE then
    refused[#refused + 1] = {letter, false}
  elseif call('EXISTS', P .. id) == 1 then
    refused[#refused + 1] = {letter, state_of(id) or 'waiting'}
  else
    longest = longest or know_queue(ARGV[4])
    revive(letter, P, id, ARGV[i + 2] == '1' and ARGV[i + 3], ARGV[i + 4] ~= '' and ARGV[i + 4])
    rejoin(id, f[2])
  end
end
if longest then
  trim_events(longest)
  mark_ready()
end
local answer = {replayed, {}, refused}
remember(answer)
return answer
