-- Jobs and dead letters that come from another store, stored once.
-- needs queue line groups places dedup dead_letters steps signals
-- ARGV[2] is that store, [3] the batch's number, [4] its mark.
local import = {place = {}, bases = {}, left_out = {}}
local ARRIVED, CHILDREN = W .. G.arrived, {{K.dependencies, 'SADD'}, {K.processed, 'HSET'}, {K.child_failures, 'HSET'}}

-- Whether it has come before, or one after it has.
function import.seen_before()
  local last, mark = (call('HGET', ARRIVED, ARGV[2]) or '0 '):match('^(%d+) (.*)$')
  if last == ARGV[3] and mark == ARGV[4] then return 'again' end
  return tonumber(ARGV[3]) <= tonumber(last) and 'stale'
end

function import.record_arrival() call('HSET', ARRIVED, ARGV[2], ARGV[3] .. ' ' .. ARGV[4]) end

function import.base(name) return PREFIX .. name .. ':' end

function import.fill(command, key, list)
  for first = 1, #list, 1000 do call(command, key, unpack(list, first, math.min(first + 999, #list))) end
end

-- What a job knows of its children.
function import.children(key, children)
  for i = 1, #CHILDREN do import.fill(CHILDREN[i][2], key .. CHILDREN[i][1], children[i]) end
  for i = 1, #children[4] do call('ZADD', key .. K.unsuccessful, NOW, children[4][i]) end
end

-- A key stays with whom it has an owner for already.
function import.hold(id, held)
  if held == cjson.null or dedup.owner_of(held[1]) then return end
  dedup.take(held[1], id, held[2] ~= '' and math.max(1, tonumber(held[2]) - now) or nil)
  if #held[3] == 0 then return end
  local following = P .. K.dedup_next .. held[1]
  call('HSET', following, unpack(held[3]))
  local f = call('HMGET', following, F.opts, F.ready)
  if f[2] then dedup.keep_due(held[1], f[1], f[2]) end
end

-- By the time at which it ended, behind those of the same millisecond.
function import.ended(name, time, id)
  local from, to = string.format('%.0f', time), '(' .. string.format('%.0f', time + 1)
  local top = call('ZREVRANGEBYSCORE', P .. name, to, from, 'WITHSCORES', 'LIMIT', 0, 1)
  local score = top[2] and math.min(tonumber(top[2]) + 1 / N.ties, time + 1 - 1 / N.ties) or time
  call('ZADD', P .. name, score, id)
end

function import.place.delayed(job, id, _, order)
  line.delay(id, tonumber(job[4]))
  if order and job[14][3] == 0 then groups.delay(id, job[7]) end
end

function import.place.waiting_children(_, id) call('ZADD', P .. K.waiting_children, NOW, id) end

function import.place.completed(job, id) import.ended(K.completed, tonumber(job[4]), id) end

function import.place.failed(job, id) import.ended(K.failed, tonumber(job[4]), id) end

function import.place.waiting(job, id, priority, order)
  if order and job[5] == 1 then return groups.park(id, job[7], order, priority, 's') end
  if order then return groups.admit(id, job[7], order, priority) end
  if job[5] == 0 then return line.push(id, priority) end
  call('LPUSH', P .. K.wait, id)
  call('ZADD', P .. K.suspects, call('HINCRBY', P .. K.toril, F.stood, 1), id)
end

function import.place.prioritized(job, id, priority, order) return import.place.waiting(job, id, priority, order) end

function import.at_least(key, field, number)
  if number > tonumber(call('HGET', key, field) or nil or 0) then call('HSET', key, field, string.format('%.0f', number)) end
end

-- A job: queue, id, state, when due or ended, whether it has stalled, priority, group, fence, fields, log lines, what it knows
-- of children, the key it holds, when its retention is over; its signals, ids of those it has read, `1` if it rests, and
-- signals that it waits for.
function import.job(job)
  local id, priority, order = job[2], tonumber(job[6]), nil
  places.switch_queue(import.base(job[1]))
  if call('EXISTS', P .. id) == 1 then return table.insert(import.left_out, {job[1], id}) end
  queue.register(job[1])
  import.bases[P] = true
  import.fill('HSET', P .. id, job[9])
  if job[7] ~= '' then
    order = groups.next_order(false)
    call('HSET', P .. id, F.group, job[7], F.order, order)
  end
  if id:find('^%d+$') and #id < 16 and tonumber(id) > tonumber(call('GET', P .. K.id) or 0) then call('SET', P .. K.id, id) end
  import.at_least(P .. K.toril, F.claims, tonumber(job[8]))
  call('HDEL', P .. K.results, id)
  call('ZREM', P .. K.results_till, id)
  if call('HEXISTS', P .. id, F.expires) == 1 then call('HSET', P .. K.toril, F.expiring, 1) end
  import.place[job[3]](job, id, priority, order)
  import.fill('RPUSH', P .. id .. K.logs, job[10])
  if job[11] ~= cjson.null then import.children(P .. id, job[11]) end
  if #job[10] > 0 or job[11] ~= cjson.null then call('HSET', P .. K.toril, F.beside, 1) end
  import.hold(id, job[12])
  if job[13] ~= '' then call('ZADD', P .. K.ages, job[13], id) end
  import.signals(P .. K.toril, P .. id, job[14])
  if #job[14][4] > 0 then signals.await(id, job[14][4]) end
  if call('HEXISTS', P .. id, F.steps) == 1 or job[14][3] == 1 then steps.start_using() end
  if job[14][3] == 1 then
    call('ZADD', P .. K.resting, job[3] == 'delayed' and job[4] or string.format('%.0f', N.rest_last), id)
  end
end

-- The signals that a job or dead letter has not read, with numbers of this queue, and ids of those that it has.
function import.signals(own, key, found)
  for i = 1, #found[1] do found[1][i][1] = call('HINCRBY', own, F.signals, 1) end
  if #found[1] > 0 then signals.save(key, F.inbox, found[1]) end
  if #found[2] > 0 then signals.save(key, F.signal_ids, found[2]) end
end

-- A dead letter: id, queue, job, cause, when it failed, attempts made, stalls, worker, what is shown of the reason, fields,
-- what it knows of children, log lines; its signals, and ids of those it has read.
function import.dead_letter(letter)
  local place = dead_letters.base .. letter[1]
  if call('EXISTS', place) == 1 then
    import.left_out[#import.left_out + 1] = {letter[2], letter[3]}
    return
  end
  local time, time_text, name = now, NOW, nil
  import.fill('HSET', place, letter[10])
  name = call('HGET', place, F.name)
  dead_letters.queue_name, now, NOW = letter[2], tonumber(letter[5]), letter[5]
  local job = {name = name, made = tonumber(letter[6]), stalls = tonumber(letter[7]), worker = letter[8] ~= '' and letter[8]}
  dead_letters.add(letter[3], job, letter[4], letter[9], {}, place)
  now, NOW = time, time_text
  if letter[11] ~= cjson.null then import.children(place, letter[11]) end
  import.fill('RPUSH', place .. K.logs, letter[12])
  import.signals(import.base(letter[2]) .. K.toril, place, letter[13])
end

-- All items, or none: ARGV from [5] on has kinds and items as JSON.
function import.batch(put)
  local before, items, clashes = import.seen_before(), {}, {}
  if before then return {before, {}} end
  for i = 5, #ARGV, 2 do
    if ARGV[i] == 'letter' and not dead_letters.can_add() then return redis.error_reply('TORILTAKEN by another program') end
  end
  for i = 5, #ARGV, 2 do
    local item = cjson.decode(ARGV[i + 1])
    items[#items + 1] = {ARGV[i], item}
    local numbered = ARGV[i] == 'job' and item[2]:find('^[1-9]%d*$')
    if numbered and call('EXISTS', import.base(item[1]) .. item[2]) == 1 then clashes[#clashes + 1] = {item[1], item[2]} end
  end
  if #clashes > 0 then return {'clash', clashes} end
  for i = 1, #items do put[items[i][1]](items[i][2]) end
  for base in pairs(import.bases) do
    places.switch_queue(base)
    places.mark_ready()
    places.mark_due()
  end
  import.record_arrival()
  return {'stored', import.left_out}
end
