-- Take jobs that do not run out of a queue, those that come next first, each with its parents and children.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, the queue's name, the store they are for, a mark, how many
-- Returns number, mark, items, now; nothing if none can leave
-- Errors  TORILMOVING
-- Events  none
-- uses groups export
local before = export.under_way()
if before then return before end
local mistake = context.wrong('list', K.wait, K.active) or context.wrong('hash', K.meta, K.toril)
  or context.wrong('stream', K.events)
  or context.wrong('zset', K.prioritized, K.delayed, K.waiting_children, K.completed, K.failed, K.suspects, K.parked)
if mistake then return mistake end

-- Those in a set, by their score.
local function take_from(name)
  local first = 0
  while not export.is_full() do
    local ids = call('ZRANGE', P .. name, first, first + export.most - 1)
    if #ids == 0 then return end
    for i = 1, #ids do
      if export.is_full() then return end
      if export.settled[P .. ids[i]] or not export.take(P, ids[i]) then first = first + 1 end
      if call('EXISTS', P .. ids[i]) == 0 then call('ZREM', P .. name, ids[i]) end  -- of which nothing is left
    end
  end
end

local function take_waiting()
  local last = -1
  while not export.is_full() do
    local ids = call('LRANGE', P .. K.wait, last - export.most + 1, last)
    for i = #ids, 1, -1 do
      if export.is_full() then return end
      if call('EXISTS', P .. ids[i]) == 0 then call('LREM', P .. K.wait, -1, ids[i]) else export.take(P, ids[i]) end
    end
    if #ids < export.most then return end
    last = last - export.most
  end
end

local function take_parked()
  local first = ''
  while not export.is_full() do
    local members = call('ZRANGEBYLEX', P .. K.parked, first == '' and '-' or '(' .. first, '+', 'LIMIT', 0, export.most)
    for i = 1, #members do
      if export.is_full() then return end
      export.take(P, groups.job_of(members[i]) or '')
    end
    if #members < export.most then return end
    first = members[#members]
  end
end

if not export.is_held_up() then
  take_waiting()
  take_from(K.prioritized)
  if groups.used() then take_parked() end
  take_from(K.delayed)
  take_from(K.waiting_children)
end
take_from(K.completed)
take_from(K.failed)
export.flush()
return export.send(export.items)
