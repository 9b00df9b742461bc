-- Whether a job has nothing but its hash and its lock. To look for what else it may have takes five searches among all
-- keys, which is most of what a million of them cost. So one job of a step is looked at, and the others are taken for
-- the same if they are Toril's own (-1 is its word for dead letters) in their first run, without children, in a queue that
-- Node's library has not opened, and in which no job was found to have more. A step of a few jobs deletes all there may be.
local bare = {trusted = count > N.few and not meta[6] and not own[11]}

function bare.is(id, options, starts, parked)
  if not bare.trusted or starts ~= '1' or parked or options.removeOnFail ~= -1 then return false end
  if not bare.looked then
    local key = P .. id
    bare.looked, bare.more = true, call('EXISTS', key .. K.logs, key .. K.dependencies, key .. K.processed,
      key .. K.child_failures, key .. K.unsuccessful) > 0
    bare.trusted = not bare.more
  end
  return bare.trusted
end

-- To be called with the first writes.
function bare.note()
  if bare.more then call('HSET', P .. K.toril, F.beside, '1') end
end
