-- Set a queue as it was set in another store, once.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, that store, the batch's number, its mark; as JSON: the queue's name, `1` if it is paused, fields of `meta`, fields of
--         `toril`, last number, last fence, groups' own limits, starts of the rate, starts of groups, signals
--         that are kept by key, ids of those that were sent by key
-- Returns `stored`, `again` or `stale`; nothing
-- Events  none
-- uses queue groups places signals import
local before = import.seen_before()
if before then return {before, {}} end
local mistake = context.wrong('list', K.wait, K.active)
  or context.wrong('zset', K.marker, K.prioritized, K.delayed, K.suspects, K.starts, K.kept_till,
    K.sent_ids, K.sent_till)
  or context.wrong('hash', K.meta, K.toril, K.group_own, K.group_starts, K.kept_signals) or context.wrong('string', K.id)
if mistake then return mistake end

local function set(key, fields)
  for i = 1, #fields, 2 do
    if fields[i + 1] == '' then call('HDEL', key, fields[i]) else call('HSET', key, fields[i], fields[i + 1]) end
  end
end

local name, paused, meta, own, number, fence, limits, starts, of_groups, kept, sent = unpack(cjson.decode(ARGV[5]))
queue.register(name)
set(P .. K.meta, {F.is_paused, paused, unpack(meta)})
set(P .. K.toril, own)
if tonumber(number) > tonumber(call('GET', P .. K.id) or 0) then call('SET', P .. K.id, number) end
if tonumber(fence) > tonumber(call('HGET', P .. K.toril, F.claims) or nil or 0) then call('HSET', P .. K.toril, F.claims, fence) end
for i = 1, #limits, 2 do
  call('HSET', P .. K.group_own, limits[i], limits[i + 1])
  call('HSET', P .. K.toril, F.grouped, 2)
end
for i = 1, #starts do
  call('ZADD', P .. K.starts, starts[i][1], starts[i][1] .. ':m' .. i .. ':' .. starts[i][2])
  call('HINCRBY', P .. K.toril, F.starts_count, starts[i][2])
end
for i = 1, #of_groups, 2 do call('HSET', P .. K.group_starts, of_groups[i], cmsgpack.pack(of_groups[i + 1])) end
for i = 1, #kept do
  kept[i][1] = call('HINCRBY', P .. K.toril, F.signals, 1)
  signals.keep(kept[i])
end
for i = 1, #sent do signals.remember_sent(signals.name_of(sent[i][1], sent[i][2]), sent[i][3], sent[i][4]) end
call('HDEL', W .. G.moving, 'queue:' .. name)
call('DEL', P .. K.departed)
groups.level, groups.known = nil, {}
import.record_arrival()
places.mark_ready()
places.mark_due()
return {'stored', {}}
