-- Store new jobs, all or none, in this order. A taken id is left as it stands and answered.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; the queue's name, how many jobs, `plain` or `any`;
--         plain ones by name, options, how many, data of each; for any other fourteen arguments, see lib/adding
-- Returns for plain jobs the first number; for others, and for none, {id, 0 | 1, state} each
-- Errors  TORILFULL most held refused; TORILGROUP most held refused group
-- Events  added, waiting, delayed, duplicated
-- include begin
-- include guard
-- include calls
local count, plain = tonumber(ARGV[5]), ARGV[6] == 'plain'
local before, late = recalled()
if late then return late end
if before then return before end
if count == 0 then remember({}) return {} end
-- include plain
local added = plain and plainly()
if added then return added end
-- include known
-- include marks
-- include adding
local mistake = wrong('list', K.wait, K.active) or wrong('stream', K.events) or wrong('hash', K.meta)
  or wrong('zset', K.prioritized, K.delayed, K.marker, K.suspects) or wrong('string', K.pc, K.id)
  or (not plain and (wrong('hash', K.results) or wrong('zset', K.results_till)))
if mistake then return mistake end

local own = call('HMGET', P .. K.toril, F.max_waiting, F.grouped, F.groups_set, F.groups_declared)
groups.note(own[2], own[3], own[4])
mistake = groups.wrong()
if mistake then return mistake end
local fresh, taken, of_groups = count, {}, {}
if not plain then fresh, taken, of_groups = look_up(count) end
mistake = overfull(of_groups)
if mistake then return mistake end
local most = tonumber(own[1] or nil)
if most and fresh > 0 then
  local held = call('LLEN', P .. K.wait) + call('LLEN', P .. K.paused) + call('ZCARD', P .. K.prioritized)
    + call('ZCARD', P .. K.delayed) + (groups.used() and call('ZCARD', P .. K.parked) or 0)
  if held + fresh > most then return redis.error_reply('TORILFULL ' .. most .. ' ' .. held .. ' ' .. fresh) end
end

local number = call('INCRBY', P .. K.id, count) - count
if number == 0 then  -- numbers begin anew: what is still kept here was of jobs of a queue that another library obliterated
  call('DEL', P .. K.results, P .. K.results_till, P .. K.ages, P .. K.runs_completed, P .. K.runs_failed, P .. K.runs_cancelled)
end
local longest = know_queue(ARGV[4])
local answer = number + 1
if plain then
  store_plain(number, longest)
else
  answer = store_all(count, number, taken)
  mark_due()
  trim_events(longest)
end
mark_ready()
remember(answer)
return answer
