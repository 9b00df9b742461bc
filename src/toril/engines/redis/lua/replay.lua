-- Move dead letters back into the queue that they came from, as jobs that have tried nothing yet.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; the queue's name; for each letter id, job, `1` if there is a payload, the payload, options
--         or nothing
-- Returns letters done, nothing, {letter, state} of those refused
-- Events  waiting
-- include begin
-- include guard
-- include calls
-- include known
-- include events
-- include places
-- include marks
-- include states
-- include burying
-- include letters
local before, late = recalled()
if late then return late end
if before then return before end
local mistake = wrong('list', K.wait, K.active) or wrong('zset', K.prioritized, K.marker, K.results_till)
  or wrong('hash', K.meta, K.toril, K.results) or wrong('stream', K.events) or wrong('string', K.pc, K.id)
if mistake then return mistake end

local done, refused, longest = {}, {}, nil

-- A number that the queue has not given out yet, since it is another queue by now, is given out.
local function count_up_to(id)
  local number = id:match('^[1-9]%d*$') and #id < 16 and tonumber(id)
  if number and number > tonumber(call('GET', P .. K.id) or 0) then call('SET', P .. K.id, id) end
end

local function again(letter, id, f, i)
  call('RENAME', D .. letter, P .. id)
  call('ZREM', D .. K.letters, letter)
  call('LREM', D .. K.wait, -1, letter)
  local data = ARGV[i + 2] == '1' and ARGV[i + 3] or own_data(f[2] or '', f[3], f[4])
  call('HSET', P .. id, F.data, data, F.delay, 0, F.ready, NOW)
  if ARGV[i + 4] ~= '' then call('HSET', P .. id, F.opts, ARGV[i + 4]) end
  call('HDEL', P .. id, F.finished_at, F.started_at, F.reason, F.result, F.attempts_made, F.attempts_made_old, F.stalls,
    F.starts, F.held, F.trace, F.kind, F.stall_cause, F.waited, F.worker, F.letter_queue, F.letter_job, F.letter_cause,
    F.letter_head, F.letter_data, F.dedup)
  call('HDEL', P .. K.results, id)
  call('ZREM', P .. K.results_till, id)
  count_up_to(id)
  if f[7] then
    call('HSET', P .. id, F.parked, 0)
    move_kin(D .. letter, P .. id)
  end
  rejoin(id, f[6])
  to_back(id, as_number(f[5], N.lowest_priority) or 0)
  event('waiting', 'jobId', id, 'prev', 'failed')
end

for i = 5, #ARGV, 5 do
  local letter, id = ARGV[i], ARGV[i + 1]
  local f = redis.pcall('HMGET', D .. letter, F.letter_queue, F.data, F.letter_head, F.letter_data, F.priority, F.parent, F.parked)
  if f.err or f[1] ~= QUEUE then
    refused[#refused + 1] = {letter, false}
  elseif call('EXISTS', P .. id) == 1 then
    refused[#refused + 1] = {letter, state_of(id) or 'waiting'}
  else
    longest = longest or know_queue(ARGV[4])
    again(letter, id, f, i)
    done[#done + 1] = letter
  end
end
if longest then
  trim_events(longest)
  mark_ready()
end
local answer = {done, {}, refused}
remember(answer)
return answer
