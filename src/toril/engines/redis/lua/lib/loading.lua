-- include van
-- include guard
-- include kinship
-- include states
-- include jobs
-- include elsewhere
-- include letters
-- include whereabouts
-- include outgoing
-- Which jobs leave: a family together, or not yet. `settled` are those taken, or known to stay.
local settled, most = {}, tonumber(ARGV[5])
local held_up, HOME = {}, P

local function is_full() return taken >= most or bulk >= N.page end

-- Nothing leaves while something runs where more would then run at once than may, or out of turn.
local function is_held_up()
  if held_up[P] == nil then
    held_up[P] = call('LLEN', P .. K.active) > 0 and (groups.used() or call('HEXISTS', P .. K.meta, F.concurrency) == 1)
  end
  return held_up[P]
end

-- Whom a job waits for, and who waits for it, are next; false if it stays.
local function look(member, ahead, with_runs)
  local key, ended = P .. member.id, member.state == 'completed' or member.state == 'failed'
  if settled[key] or member.state == 'active' or (not ended and (is_held_up() or (not with_runs and is_run(member.id)))) then return false end
  local link = not ended and link_of(call('HGET', key, F.parent))
  if link and call('EXISTS', link.key) == 1 and call('SISMEMBER', link.key .. K.dependencies, key) == 1 then
    ahead[#ahead + 1] = {link.base, link.id}
  end
  for _, child in ipairs(call('SMEMBERS', key .. K.dependencies)) do
    local queue, id = split(child)
    if child == key .. K.hold then return false end
    if queue then ahead[#ahead + 1] = {PREFIX .. queue .. ':', id} end
  end
  return true
end

-- Take a job with its family. False: they stay.
local function take(base, id, with_runs)
  local members, seen, ahead, letters, stays = {}, {}, {{base, id}}, {}, false
  while #ahead > 0 and not stays do
    local place = table.remove(ahead)
    local key = place[1] .. place[2]
    if not seen[key] then
      seen[key] = true
      at(place[1])
      local member = {base = place[1], id = place[2]}
      member.state, member.score = standing(member.id)
      if member.state then members[#members + 1], stays = member, not look(member, ahead, with_runs) else letters[#letters + 1] = key end
    end
  end
  for key in pairs(seen) do settled[key] = true end
  if stays then return false end
  for i = 1, #members do take_out(members[i]) end
  for i = 1, #letters do take_letter_of(split(letters[i])) end
  taken = taken + #members
  at(HOME)
  return true
end
