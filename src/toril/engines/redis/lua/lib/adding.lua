-- include states
-- include once
-- Jobs of all kinds: each has fourteen arguments (id, name, data, options, delay, due, priority, lifo, expires, metadata; of
-- its deduplication the key, the mode, the time; its group).
local function arguments(i) return unpack(ARGV, 7 + (i - 1) * 14, 20 + (i - 1) * 14) end

-- How many are new, and which ids are taken by jobs that are there already.
local function look_up(count)
  local taken, fresh, seen, keys, of_groups = {}, 0, {}, {}, {}
  for i = 1, count do
    local id, key = arguments(i), ARGV[17 + (i - 1) * 14]
    local owned = key ~= '' and (keys[key] or owner_of(key))
    local before = fresh
    if key ~= '' then keys[key] = true end
    if id ~= '' and not seen[id] then
      seen[id], taken[id] = true, call('EXISTS', P .. id) == 1 and (state_of(id) or 'waiting') or nil
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
local function overfull(of_groups)
  for name, count in pairs(of_groups) do
    local g = groups.of(name)
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
      event('duplicated', 'jobId', id)
      answer[i] = {id, 1, state}
    elseif ARGV[17 + (i - 1) * 14] ~= '' then
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
