-- Look at some of the ids that stand in one place.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, the place, where to go on (`0` to begin), how many
-- Returns where to go on, `0` at the end; for each fault its kind and the id; for each text of options of jobs that have
--         not ended, the text and their ids
-- Events  none
-- uses places faults
local place, from, most = ARGV[2], ARGV[3], tonumber(ARGV[4])
local kind, ids, following, found = call('TYPE', P .. place).ok, {}, '0', {}
local ended, options, of_text = place == K.completed or place == K.failed, {}, {}
local mistake = context.wrong('zset', K.prioritized, K.delayed, K.waiting_children, K.completed, K.failed, K.deadlines)
if mistake then return mistake end
if kind == 'list' then
  ids = call('LRANGE', P .. place, from, from + most - 1)
  if #ids == most then following = string.format('%.0f', from + most) end
elseif kind == 'zset' then
  local page = call('ZSCAN', P .. place, from, 'COUNT', most)
  following = page[1]
  for i = 1, #page[2], 2 do ids[#ids + 1] = page[2][i] end
end

for _, id in ipairs(ids) do
  if id:sub(1, 2) ~= '0:' then  -- what versions before 5 marked the list with
    if not faults.is_job(id) then
      if not faults.is_locked(id) then found[#found + 1] = {'ghost', id} end
    else
      local count = kind == 'list' and 1 or 0
      for i = 1, #places.sets do
        if call('ZSCORE', P .. places.sets[i][1], id) then count = count + 1 end
      end
      if count > 1 then found[#found + 1] = {'two_places', id} end
      if place == K.active and not faults.is_locked(id) then found[#found + 1] = {'lost_job', id} end
      local text = not ended and call('HGET', P .. id, F.opts)
      if text then
        if not of_text[text] then
          of_text[text] = {text}
          options[#options + 1] = of_text[text]
        end
        of_text[text][#of_text[text] + 1] = id
      end
      if (place == K.waiting_children or place == K.delayed) and faults.check.stuck_parent(id) then found[#found + 1] = {'stuck_parent', id} end
    end
  end
end
return {following, found, options}
