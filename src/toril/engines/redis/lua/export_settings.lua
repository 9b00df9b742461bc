-- Pause a queue that leaves for another store; how it was set before that is sent once.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, the queue's name, the store it leaves for, a mark
-- Returns number, mark, items, now; nothing if it was sent before
-- Errors  TORILMOVING
-- Events  paused
-- uses events signals export
local before = export.under_way()
if before then return before end
local mistake = context.wrong('hash', K.meta, K.toril, K.group_own, K.group_starts, K.kept_signals) or context.wrong('stream', K.events)
  or context.wrong('list', K.wait, K.paused) or context.wrong('zset', K.starts, K.kept_till, K.sent_ids, K.sent_till)
if mistake then return mistake end
local meta = call('HMGET', P .. K.meta, F.is_paused, F.concurrency, F.rate_max, F.rate_ms)
local target, was_paused = (call('HGET', export.progress, 'queue:' .. ARGV[2]) or ''):match('^(%S+) (%d)$')
local paused = meta[1] and (was_paused or '1') or '0'  -- where someone has let it go on since, that counts

if call('HSET', P .. K.meta, F.is_paused, 1) == 1 then events.add('paused') end
call('DEL', P .. K.marker)
while call('LMOVE', P .. K.paused, P .. K.wait, 'LEFT', 'RIGHT') do end
if target == ARGV[3] then return false end
call('HSET', export.progress, 'queue:' .. ARGV[2], ARGV[3] .. ' ' .. paused)
call('DEL', P .. K.departed)  -- what has left for another store may be here again

local own = call('HMGET', P .. K.toril, F.window, F.max_waiting, F.held_till, F.groups_set, F.groups_declared, F.claims)
local of_groups = call('HGETALL', P .. K.group_starts)
for i = 2, #of_groups, 2 do of_groups[i] = cmsgpack.unpack(of_groups[i]) end
return export.send({{'settings', ARGV[2], paused, {meta[2], meta[3], meta[4], own[1], own[2], own[3], own[4], own[5]},
  {call('GET', P .. K.id), own[6]}, call('HGETALL', P .. K.group_own), call('ZRANGE', P .. K.starts, 0, -1), of_groups,
  signals.take_kept(), signals.take_sent()}})
