-- include attaching
-- A job rests until its children have ended, those that it comes with among them. Where one of these cannot be added it
-- fails; where none is open it goes back to the front. False: neither, and what to do instead.
local function park(id, text, step)
  local home = P
  local refusal, mistake = decide_all(cjson.decode(text), false, {[P .. id] = {stored = true, base = P, id = id}})
  if mistake then refusal = {'damaged', '', mistake.err} end
  if not refusal then write_all() end
  at(home)
  if refusal then return false, 'child ' .. refusal[2] .. ' cannot be added: ' .. refusal[1] .. ' ' .. refusal[3] end
  call('HSET', P .. id, F.delay, 0, F.waited, 0)
  if step > 0 then call('HSET', P .. id, F.parked, step) end
  if call('SCARD', P .. id .. K.dependencies) == 0 then return false end
  call('ZADD', P .. K.waiting_children, NOW, id)
  event('waiting-children', 'jobId', id, 'prev', 'active')
  return true
end
