-- include states
-- include once
-- Jobs of all kinds: each has thirteen arguments (id, name, data, options, delay, due, priority, lifo, expires, metadata; of
-- its deduplication the key, the mode, the time).
local function arguments(i) return unpack(ARGV, 7 + (i - 1) * 13, 19 + (i - 1) * 13) end

-- How many are new, and which ids are taken by jobs that are there already.
local function look_up(count)
  local taken, fresh, seen, keys = {}, 0, {}, {}
  for i = 1, count do
    local id, key = arguments(i), ARGV[17 + (i - 1) * 13]
    local owned = key ~= '' and (keys[key] or owner_of(key))
    if key ~= '' then keys[key] = true end
    if id ~= '' and not seen[id] then
      seen[id], taken[id] = true, call('EXISTS', P .. id) == 1 and (state_of(id) or 'waiting') or nil
      if not taken[id] and not owned then fresh = fresh + 1 end
    elseif id == '' and not owned then
      fresh = fresh + 1
    end
  end
  return fresh, taken
end

-- All of them; for each id, whether it was added (0), taken (1), left out (2) or put in another's place (3), and its state.
local function store_all(count, number, taken)
  local answer, states = {}, {}
  for i = 1, count do
    local chosen = arguments(i)
    local id = chosen ~= '' and chosen or tostring(number + i)
    local state = taken[id] or states[id]
    if chosen ~= '' and state then
      event('duplicated', 'jobId', id)
      answer[i] = {id, 1, state}
    elseif ARGV[17 + (i - 1) * 13] ~= '' then
      answer[i] = store_once(id, arguments(i))
      if answer[i][2] ~= 2 then states[id] = answer[i][3] end
    else
      if chosen ~= '' then  -- a result that was kept of an earlier job of this id is not this one's
        call('HDEL', P .. K.results, id)
        call('ZREM', P .. K.results_till, id)
      end
      states[id] = store(id, arguments(i))
      answer[i] = {id, 0, states[id]}
    end
  end
  return answer
end
