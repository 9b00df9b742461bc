-- Store new jobs, all or none, in this order. A taken id is left as it stands and answered.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; the queue's name, how many jobs, `plain` or `any`;
--         plain ones by name, options, how many, data of each; for any other fourteen arguments, see below
-- Returns for plain jobs the first number; for others, and for none, {id, 0 | 1, state} each
-- Errors  TORILFULL most held refused; TORILGROUP most held refused group
-- Events  added, waiting, delayed, duplicated
-- uses calls new_jobs
local count, plain = tonumber(ARGV[5]), ARGV[6] == 'plain'
local before = calls.recall()
if before then return before end
if count == 0 then calls.remember({}) return {} end
local added = plain and new_jobs.add_plain(count)
if added then return added end
-- then events queue groups places dedup steps
-- Jobs of all kinds: each has fourteen arguments (id, name, data, options, delay, due, priority, lifo, expires, metadata; of
-- its deduplication the key, the mode, the time; its group).
local function arguments(i) return unpack(ARGV, 7 + (i - 1) * 14, 20 + (i - 1) * 14) end

-- How many are new, and which ids are taken by jobs that are there already.
local function look_up(count)
  local taken, fresh, seen, keys, of_groups = {}, 0, {}, {}, {}
  for i = 1, count do
    local id, key = arguments(i), ARGV[17 + (i - 1) * 14]
    local owned = key ~= '' and (keys[key] or dedup.owner_of(key))
    local before = fresh
    if key ~= '' then keys[key] = true end
    if id ~= '' and not seen[id] then
      seen[id], taken[id] = true, call('EXISTS', P .. id) == 1 and (places.state(id) or 'waiting') or nil
      if not taken[id] and not owned then fresh = fresh + 1 end
    elseif id == '' and not owned then
      fresh = fresh + 1
    end
    local group = ARGV[20 + (i - 1) * 14]
    if group ~= '' and fresh > before then of_groups[group] = (of_groups[group] or 0) + 1 end
  end
  return fresh, taken, of_groups
end

-- An error reply if a group would have more waiting than it may.
local function overfull_groups(of_groups)
  for name, count in pairs(of_groups) do
    local g = groups.get(name)
    local most, held = g.waiting, g.waiting and groups.waiting(g)
    if most and held + count > most then
      return redis.error_reply('TORILGROUP ' .. most .. ' ' .. held .. ' ' .. count .. ' ' .. name)
    end
  end
end

-- All of them; for each id, whether it was added (0), taken (1), left out (2) or put in another's place (3), and its state.
local function store_all(count, number, taken)
  local answer, states = {}, {}
  for i = 1, count do
    local chosen = arguments(i)
    local id = chosen ~= '' and chosen or tostring(number + i)
    local state = taken[id] or states[id]
    if chosen ~= '' and state then
      events.add('duplicated', 'jobId', id)
      answer[i] = {id, 1, state}
    elseif ARGV[17 + (i - 1) * 14] ~= '' then
      answer[i] = dedup.store(id, arguments(i))
      if answer[i][2] ~= 2 then states[id] = answer[i][3] end
    else
      if chosen ~= '' then  -- a result that was kept of an earlier job of this id is not this one's
        call('HDEL', P .. K.results, id)
        call('ZREM', P .. K.results_till, id)
      end
      states[id] = new_jobs.store(id, arguments(i))
      answer[i] = {id, 0, states[id]}
    end
  end
  return answer
end

local mistake = context.wrong('list', K.wait, K.active) or context.wrong('stream', K.events)
  or context.wrong('hash', K.meta) or context.wrong('zset', K.prioritized, K.delayed, K.marker, K.suspects)
  or context.wrong('string', K.pc, K.id)
  or (not plain and (context.wrong('hash', K.results) or context.wrong('zset', K.results_till)))
if mistake then return mistake end

local own = call('HMGET', P .. K.toril, F.max_waiting, F.grouped, F.groups_set, F.groups_declared)
groups.settings = {own[2], own[3], own[4]}
mistake = groups.wrong()
if mistake then return mistake end
local fresh, taken, of_groups = count, {}, {}
if not plain then fresh, taken, of_groups = look_up(count) end
mistake = overfull_groups(of_groups)
if mistake then return mistake end
local most = tonumber(own[1] or nil)
if most and fresh > 0 then
  local held = call('LLEN', P .. K.wait) + call('LLEN', P .. K.paused) + call('ZCARD', P .. K.prioritized)
    + call('ZCARD', P .. K.delayed) - steps.delayed_rests() + (groups.used() and call('ZCARD', P .. K.parked) or 0)
  if held + fresh > most then return redis.error_reply('TORILFULL ' .. most .. ' ' .. held .. ' ' .. fresh) end
end

local number = call('INCRBY', P .. K.id, count) - count
if number == 0 then  -- numbers begin anew: what is still kept here was of jobs of a queue that another library obliterated
  call('DEL', P .. K.results, P .. K.results_till, P .. K.ages, P .. K.runs_completed, P .. K.runs_failed, P .. K.runs_cancelled)
end
local longest = queue.register(ARGV[4])
local answer = number + 1
if plain then
  new_jobs.store_plain(number, count, longest)
else
  answer = store_all(count, number, taken)
  places.mark_due()
  events.trim(longest)
end
places.mark_ready()
calls.remember(answer)
return answer
