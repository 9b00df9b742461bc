-- Whether a job has nothing but its hash and its lock. To look for what else it may have takes five searches among all
-- keys, which is most of what a million of them cost. So one job of a step, drawn by lot, is looked at, and the others are
-- taken for the same if they are Toril's own (-1 is its word for dead letters) in their first run, without children, in a
-- queue that Node's library has not opened, and in which no job was found to have more. A step of a few jobs deletes all
-- there may be.
local bare = {trusted = count > N.few and not meta[6] and not own[11], ids = {}}

-- False, or what says for this job as well whether there is more: `trusted`, once the one that was drawn is looked at.
function bare.is(id, options, starts, parked)
  if not bare.trusted or starts ~= '1' or parked or options.removeOnFail ~= -1 then return false end
  bare.ids[#bare.ids + 1] = id
  return bare
end

-- To be called with the first writes, before any job is forgotten. The lot comes from the claim's token, which no two
-- steps of a worker share, and from the jobs: the same step draws the same one again.
function bare.note()
  local ids = bare.ids
  if #ids == 0 then return end
  local lot = tonumber(redis.sha1hex(ARGV[5] .. ':' .. ids[1]):sub(1, 8), 16)
  local key = P .. ids[1 + lot % #ids]
  bare.trusted = call('EXISTS', key .. K.logs, key .. K.dependencies, key .. K.processed, key .. K.child_failures,
    key .. K.unsuccessful) == 0
  if not bare.trusted then call('HSET', P .. K.toril, F.beside, '1') end
end
