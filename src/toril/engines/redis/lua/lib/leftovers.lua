-- include faults
-- include parents
-- include burying
-- Faults of what belongs to jobs: parents, deduplication, suspects, workers.

-- Whether something is left of a child: the job, its dead letter, or the word that more children are on their way.
local function is_left(child, hold)
  if child == hold or call('EXISTS', child) == 1 then return true end
  local queue, id = child:sub(#PREFIX + 1):match('^([^:]+):(.+)$')
  return queue and call('EXISTS', D .. queue .. '/' .. id:gsub('%%', '%%25'):gsub(':', '%%3A')) == 1
end

-- Whether a parent has nobody who could release it: no child, or only such as are gone.
function FAULT.stuck_parent(id)
  if not call('ZSCORE', P .. K.waiting_children, id) or not is_job(id) then return false end
  local key, cursor, seen = P .. id .. K.dependencies, '0', 0
  repeat
    local found = call('SSCAN', key, cursor, 'COUNT', 100)
    cursor, seen = found[1], seen + #found[2]
    for i = 1, #found[2] do
      if is_left(found[2][i], P .. id .. K.hold) then return false end
    end
  until cursor == '0' or seen > N.strangers
  return cursor == '0'
end

-- A key without a time is its owner's until that ends. One with a time goes by itself.
function FAULT.stale_dedup(key)
  local name = P .. K.dedup .. ':' .. key
  local owner = redis.pcall('GET', name)
  if type(owner) ~= 'string' or call('PTTL', name) ~= -1 then return false end
  return not is_job(owner) or call('ZSCORE', P .. K.completed, owner) or call('ZSCORE', P .. K.failed, owner)
end

function FAULT.stale_suspect(id)
  return call('ZSCORE', P .. K.suspects, id) and can_walk() and not call('LPOS', P .. K.wait, id)
end

function FAULT.dead_worker(worker)
  local till = tonumber(call('ZSCORE', W .. G.workers_till, worker) or nil)
  return till and till + N.mourned < now
end

function FAULT.foreign_key() return false end  -- else this script would have ended before
function FAULT.unreadable_job() return false end  -- which only readers of JSON in Python decide
