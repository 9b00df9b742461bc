-- Leases: whether they hold, and granting them.
-- needs events queue
local leases = {taken = {}, taken_ids = {}, fence = 0}
local token, worker, deadline, ttl, max_stalls

-- Whether leases hold: the lock has their token, and their time is not up. With the server's clock the lock is gone then.
function leases.held(ids, tokens)
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

-- What leases are granted for: ARGV[5] token, [6] lease, [7] worker, [9] max stalls.
function leases.prepare()
  token, worker, max_stalls = ARGV[5], ARGV[7], ARGV[9]
  deadline, ttl = string.format('%.0f', now + ARGV[6]), slack == 0 and ARGV[6] or string.format('%.0f', ARGV[6] + slack)
  leases.fence = tonumber(queue.own[1] or nil) or 0
end

-- Give a job into the claimer's hands. `row` is its hash as it was before.
function leases.grant(id, row, starts, suspect)
  local key, n, fence = P .. id, #leases.taken + 1, leases.fence + 1
  leases.fence = fence
  starts = starts and tostring((context.number(starts) or 0) + 1) or '1'
  call('HSET', key, F.started_at, NOW, F.worker, worker, F.starts, starts, F.held, string.format('%d %d ', fence, suspect) .. max_stalls)
  call('SET', key .. K.lock, token, 'PX', ttl)
  if n == 1 then
    call('XADD', EVENTS, 'MAXLEN', '~', events.longest(queue.meta[5]), '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
  else
    call('XADD', EVENTS, '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
  end
  leases.taken[n], leases.taken_ids[n] = {id, fence, suspect, row}, id
end

-- After the last of them; `listed` says that they are among the active ones already.
function leases.record_granted(listed)
  local ids, deadlines = leases.taken_ids, {}
  if #ids == 0 then return end
  -- The last one first: where the set is small, an entry that goes to its beginning is put there without a search.
  for i = 1, #ids do deadlines[2 * i - 1], deadlines[2 * i] = deadline, ids[#ids - i + 1] end
  if not listed then call('LPUSH', P .. K.active, unpack(ids)) end
  call('ZADD', P .. K.deadlines, unpack(deadlines))
  call('HSET', P .. K.toril, F.claims, string.format('%d', leases.fence))
end

-- The answer to an exchange that is sent again: of the jobs that it granted those whose leases still hold.
function leases.granted_before(answer)
  local again, tokens = {}, {}
  for i = 1, #answer[2] do tokens[i] = ARGV[5] end
  for i, held in ipairs(leases.held(answer[2], tokens)) do
    if held then
      local id = answer[2][i]
      local row, fence, suspect = call('HGETALL', P .. id), call('HGET', P .. id, F.held):match('^(%d+) (%d)')
      for j = 1, #row, 2 do
        if row[j] == F.starts then row[j + 1] = tostring(row[j + 1] - 1) end  -- this start was not counted yet
      end
      again[#again + 1] = {id, tonumber(fence), tonumber(suspect), row}
    end
  end
  return {answer[1], again, answer[3], answer[4], answer[5], answer[6], answer[7] or {}}
end
