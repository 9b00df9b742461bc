-- include turns
-- What is true of groups. Workers of other libraries finish jobs, put them off and remove them without a word to their
-- groups, and limits change for all groups at once: so groups are gone through, a bounded number a call.

-- Whether a seat is rightly held. What is in the line by its seat may have been taken by another library's worker.
local function is_held(g, id, in_line)
  local key = P .. id
  if call('EXISTS', key) == 0 or call('ZSCORE', P .. K.completed, id) or call('ZSCORE', P .. K.failed, id) then return false end
  if groups.is_parked(id) or type(redis.pcall('ZSCORE', P .. K.waiting_children, id)) == 'string' then return false end
  local runs = call('EXISTS', key .. K.lock) == 1
  groups.strangers = groups.strangers or runs
  if in_line and runs then
    call('ZREM', P .. K.seats, g.name .. IN_LINE .. id)
    call('ZADD', P .. K.seats, 0, g.name .. STARTED .. id)
    if g.max then groups.count_start(g) end
  end
  return true
end

-- Look at the seats of a group, but for those of jobs that run under a lease of ours. How many were looked at.
local function tend_one(name)
  local g = groups.of(name)
  local seats, looked = call('ZRANGEBYLEX', P .. K.seats, g.first, '(' .. name .. '\3', 'LIMIT', 0, N.tended), 0
  for i = 1, #seats do
    local in_line, id = seats[i]:sub(#name + 1, #name + 1) == IN_LINE, seats[i]:sub(#name + 2)
    if not call('ZSCORE', P .. K.deadlines, id) then
      looked = looked + 1
      if not is_held(g, id, in_line) then groups.give_up_seat(id, name) end
    end
  end
  groups.touch(name)
  return looked
end

-- Jobs that count as put off and are in `delayed` no more were taken out of it by others. The last one looked at.
local function tend_put_off(after)
  local members = call('ZRANGEBYLEX', P .. K.put_off, after == '' and '-' or '(' .. after, '+', 'LIMIT', 0, N.glanced)
  for i = 1, #members do
    if not call('ZSCORE', P .. K.delayed, members[i]:match('\1(.*)$')) then call('ZREM', P .. K.put_off, members[i]) end
  end
  return members[#members], #members
end

-- The next group after `name` in one of the sets.
local function group_after(key, name)
  local member = call('ZRANGEBYLEX', key, name == '' and '-' or '(' .. name .. '\3', '+', 'LIMIT', 0, 1)[1]
  return member and member:match('^([^\1\2]*)')
end

-- First those with parked jobs, then all that have seats, then the jobs put off; the next call goes on where this one stops.
local NEXT = {p = 's', s = 'o', o = 'p'}
function groups.tend(most)
  if not groups.used() then return end
  local phase, name = (call('HGET', P .. K.toril, F.tended) or 'p'):match('^(.)(.*)$')
  local looked, rounds = 0, 0
  while looked < most and rounds < 3 do
    local count
    if phase == 'o' then
      name, count = tend_put_off(name)
    else
      name = group_after(phase == 'p' and P .. K.parked or P .. K.seats, name)
      count = name and 1 + tend_one(name)
    end
    if name then
      looked = looked + count
    else
      phase, name, rounds = NEXT[phase], '', rounds + 1
    end
  end
  call('HSET', P .. K.toril, F.tended, phase .. name)
  groups.flush()
end
