-- A queue is known from its first job or setting on. Gives the bound of its stream.
local function know_queue(name)
  local most = call('HGET', P .. K.meta, F.max_events)
  if most then return most end
  call('HSET', P .. K.meta, F.max_events, N.events)
  call('SADD', W .. G.queues, name)
  return tostring(N.events)
end
