-- include dedup
-- include arriving
-- include known
-- include elsewhere
-- include burying
-- Jobs from another store, each as JSON: queue, id, state, when due or ended, whether it has stalled, priority, group, fence,
-- fields, log lines, what it knows of children, the key it holds, when its retention is over.
local bases, left_out, LISTS = {}, {}, {{K.dependencies, 'SADD'}, {K.processed, 'HSET'}, {K.child_failures, 'HSET'}}

local function base_of(queue) return PREFIX .. queue .. ':' end

local function filled(command, key, list)
  for first = 1, #list, 1000 do call(command, key, unpack(list, first, math.min(first + 999, #list))) end
end

local function put_kin(key, kin)
  for i = 1, #LISTS do filled(LISTS[i][2], key .. LISTS[i][1], kin[i]) end
  for i = 1, #kin[4] do call('ZADD', key .. K.unsuccessful, NOW, kin[4][i]) end
end

-- A key stays with whom it has an owner for already.
local function hold(id, held)
  if held == cjson.null or owner_of(held[1]) then return end
  take_key(held[1], id, held[2] ~= '' and math.max(1, tonumber(held[2]) - now) or nil)
  if #held[3] == 0 then return end
  call('HSET', next_of(held[1]), unpack(held[3]))
  local f = call('HMGET', next_of(held[1]), F.opts, F.ready)
  if f[2] then keep_due(held[1], f[1], f[2]) end
end

-- By the time at which it ended, behind those of the same millisecond.
local function ended_at(name, time, id)
  local top = call('ZREVRANGEBYSCORE', P .. name, '(' .. string.format('%.0f', time + 1), string.format('%.0f', time), 'WITHSCORES', 'LIMIT', 0, 1)
  local score = top[2] and math.min(tonumber(top[2]) + 1 / N.ties, time + 1 - 1 / N.ties) or time
  call('ZADD', P .. name, score, id)
end

local PLACES = {}
function PLACES.delayed(job, id, _, order)
  delay_until(id, tonumber(job[4]))
  if order then groups.put_off(id, job[7]) end
end
function PLACES.waiting_children(_, id) call('ZADD', P .. K.waiting_children, NOW, id) end
function PLACES.completed(job, id) ended_at(K.completed, tonumber(job[4]), id) end
function PLACES.failed(job, id) ended_at(K.failed, tonumber(job[4]), id) end
function PLACES.waiting(job, id, priority, order)
  if order and job[5] == 1 then return groups.park(id, job[7], order, priority, 's') end
  if order then return groups.come(id, job[7], order, priority) end
  if job[5] == 0 then return stand(id, priority) end
  call('LPUSH', P .. K.wait, id)
  call('ZADD', P .. K.suspects, call('HINCRBY', P .. K.toril, F.stood, 1), id)
end
PLACES.prioritized = PLACES.waiting

local function at_least(key, field, number)
  if number > tonumber(call('HGET', key, field) or nil or 0) then call('HSET', key, field, string.format('%.0f', number)) end
end

local function put_job(job)
  local id, priority, order = job[2], tonumber(job[6]), nil
  at(base_of(job[1]))
  if call('EXISTS', P .. id) == 1 then return table.insert(left_out, {job[1], id}) end
  know_queue(job[1])
  bases[P] = true
  call('HSET', P .. id, unpack(job[9]))
  if job[7] ~= '' then
    order = groups.order(false)
    call('HSET', P .. id, F.group, job[7], F.order, order)
  end
  if id:find('^%d+$') and #id < 16 and tonumber(id) > tonumber(call('GET', P .. K.id) or 0) then call('SET', P .. K.id, id) end
  at_least(P .. K.toril, F.claims, tonumber(job[8]))
  call('HDEL', P .. K.results, id)
  call('ZREM', P .. K.results_till, id)
  if call('HEXISTS', P .. id, F.expires) == 1 then call('HSET', P .. K.toril, F.expiring, 1) end
  PLACES[job[3]](job, id, priority, order)
  filled('RPUSH', P .. id .. K.logs, job[10])
  if job[11] ~= cjson.null then put_kin(P .. id, job[11]) end
  if #job[10] > 0 or job[11] ~= cjson.null then call('HSET', P .. K.toril, F.beside, 1) end
  hold(id, job[12])
  if job[13] ~= '' then call('ZADD', P .. K.ages, job[13], id) end
end
