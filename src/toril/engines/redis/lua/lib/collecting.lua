-- include jobs
-- include burying
-- Dead letters that others leave to be written, and those whose own retention is over.

-- Jobs of ours that a worker of another library failed. It keeps them, as their options tell it to; here they are moved.
-- What it writes goes by its machine's clock, so a stretch behind the last one seen is looked at again.
local function collect(limit)
  local from = tonumber(call('HGET', P .. K.toril, F.collected) or nil) or 0
  local found, moved = call('ZRANGEBYSCORE', P .. K.failed, from - N.skew, '+inf', 'WITHSCORES', 'LIMIT', 0, limit), 0
  for i = 1, #found, 2 do
    local id = found[i]
    local f = call('HMGET', P .. id, F.name, F.opts, F.reason, F.attempts_made, F.attempts_made_old, F.stalls, F.worker, F.parked)
    if f[1] and options_of(f[2]).removeOnFail == -1 and may_bury() then
      local reason = f[3] or ''
      local job = {name = f[1], made = as_number(f[4] or f[5]) or 0, stalls = as_number(f[6]) or 0, worker = f[7], parked = f[8]}
      call('ZREM', P .. K.failed, id)
      bury(id, job, reason:find('stalled more than', 1, true) and 'stalled' or 'failed', reason:sub(1, 1024), {})
      forget(id)
      moved = moved + 1
    end
    from = math.max(from, tonumber(found[i + 1]))
  end
  if #found > 0 then call('HSET', P .. K.toril, F.collected, string.format('%.0f', from)) end
  return moved
end

local function drop(letters)
  for i = 1, #letters do
    call('ZREM', D .. K.letters, letters[i])
    call('LREM', D .. K.wait, -1, letters[i])
    call('DEL', D .. letters[i])
    drop_belongings(D .. letters[i])
  end
  return #letters
end

local function drop_old(limit)
  local count, age = (call('HGET', D .. K.toril, F.keep_letters) or ''):match('^(%-?%d+) (%-?%d+)$')
  count, age = tonumber(count), tonumber(age)
  local dropped = 0
  if age and age >= 0 then
    dropped = drop(call('ZRANGEBYSCORE', D .. K.letters, '-inf', '(' .. string.format('%.0f', now - age), 'LIMIT', 0, limit))
  end
  local over = count and count >= 0 and call('ZCARD', D .. K.letters) - count or 0
  if over > 0 then dropped = dropped + drop(call('ZRANGE', D .. K.letters, 0, math.min(over, limit) - 1)) end
  return dropped
end
