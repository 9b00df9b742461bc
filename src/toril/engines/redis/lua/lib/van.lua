-- What has left its place for another store and is not known to have arrived there: one load, numbered. ARGV[3] is the
-- store it is for, ARGV[4] a mark for a new one.
local MOVING, VAN = W .. G.moving, W .. G.van

local function loaded()
  local f, parcels = call('HMGET', MOVING, 'number', 'mark'), call('LRANGE', VAN, 0, -1)
  for i = 1, #parcels do parcels[i] = cmsgpack.unpack(parcels[i]) end
  return {tonumber(f[1]), f[2], parcels, now}
end

-- The load that is on its way, if there is one; an error reply if it is for another store.
local function on_its_way()
  local f = call('HMGET', MOVING, 'under_way', 'to')
  if not f[1] then return nil end
  return f[2] == ARGV[3] and loaded() or redis.error_reply('TORILMOVING to another')
end

local function send(parcels)
  if #parcels == 0 then return false end
  call('HINCRBY', MOVING, 'number', 1)
  call('HSET', MOVING, 'mark', ARGV[4], 'to', ARGV[3], 'under_way', 1)
  for i = 1, #parcels do call('RPUSH', VAN, cmsgpack.pack(parcels[i])) end
  return loaded()
end
