-- Add jobs that wait for each other, in any queues, all or none.
-- KEYS    the base of any queue, the fleet's base
-- ARGV    now, sender, number; as JSON: the jobs (see `flows.node`), {queue, id} of parents to hold back, of those to hold
--         back no longer; how long to hold them back
-- Returns {id, 0 if added, state} each; or {'refused', why, …}
-- Events  added, waiting, delayed, waiting-children
-- uses calls parents flows
local before = calls.recall()
if before then return before end
local refusal, mistake = flows.decide_all(cjson.decode(ARGV[4]), true)
if mistake then return mistake end
if refusal then return {'refused', refusal} end

flows.write()
local held = {}
for _, ref in ipairs(cjson.decode(ARGV[5])) do
  local base, key = PREFIX .. ref[1] .. ':', PREFIX .. ref[1] .. ':' .. ref[2]
  local is_new = flows.with_children[key] and not flows.with_children[key].stored  -- not one that was whole before
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
  flows.with_children[key] = flows.with_children[key] or {base = base, id = ref[2]}
end
for key, parent in pairs(flows.with_children) do
  if not held[key] then parents.release_if_done({base = parent.base, id = parent.id, key = key}) end
end

local answer = {}
for i, node in ipairs(flows.nodes) do
  answer[i] = {node.n[2], (node.how == 'new' or node.how == 'resumed') and 0 or 1, node.state}
end
calls.remember(answer)
return answer
