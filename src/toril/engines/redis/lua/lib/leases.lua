-- Whether leases hold: the lock has their token, and their time is not up. With the server's clock the lock is gone then.
local function holds(ids, tokens)
  local locks, held = {}, {}
  for i = 1, #ids do locks[i] = P .. ids[i] .. K.lock end
  if #ids == 0 then return held end
  locks = call('MGET', unpack(locks))
  local deadlines = slack > 0 and call('ZMSCORE', P .. K.deadlines, unpack(ids))
  for i = 1, #ids do
    held[i] = locks[i] == tokens[i] and (not deadlines or (deadlines[i] and tonumber(deadlines[i]) > now))
  end
  return held
end
