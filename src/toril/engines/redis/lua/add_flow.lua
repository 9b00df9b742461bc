-- Add jobs that wait for each other, in any queues, all or none.
-- KEYS    the base of any queue, the fleet's base
-- ARGV    now, sender, number; as JSON: the jobs (see lib/nodes), {queue, id} of parents to hold back, of those to hold
--         back no longer; how long to hold them back
-- Returns {id, 0 if added, state} each; or {'refused', why, …}
-- Events  added, waiting, delayed, waiting-children
-- include begin
-- include calls
-- include attaching
local before, late = recalled()
if late then return late end
if before then return before end
local refusal, mistake = decide_all(cjson.decode(ARGV[4]), true)
if mistake then return mistake end
if refusal then return {'refused', refusal} end

write_all()
local held = {}
for _, ref in ipairs(cjson.decode(ARGV[5])) do
  local base, key = PREFIX .. ref[1] .. ':', PREFIX .. ref[1] .. ':' .. ref[2]
  local is_new = families[key] and not families[key].stored  -- not one that was whole before
  if is_new or call('SISMEMBER', key .. K.dependencies, key .. K.hold) == 1 then
    held[key] = true
    call('SADD', key .. K.dependencies, key .. K.hold)
    call('ZADD', base .. K.building, now + tonumber(ARGV[7]), ref[2])
  end
end
for _, ref in ipairs(cjson.decode(ARGV[6])) do
  local base, key = PREFIX .. ref[1] .. ':', PREFIX .. ref[1] .. ':' .. ref[2]
  call('SREM', key .. K.dependencies, key .. K.hold)
  call('ZREM', base .. K.building, ref[2])
  families[key] = families[key] or {base = base, id = ref[2]}
end
for key, family in pairs(families) do
  if not held[key] then go_on({base = family.base, id = family.id, key = key}) end
end

local answer = {}
for i = 1, #nodes do answer[i] = {nodes[i].n[2], (nodes[i].how == 'new' or nodes[i].how == 'resumed') and 0 or 1, nodes[i].state} end
remember(answer)
return answer
