-- Seats that nobody holds any more: what is true of groups is compared with what is written of them.
-- needs groups
-- Workers of other libraries finish jobs, delay them and remove them without a word to their groups, and limits change
-- for all groups at once: so groups are gone through, a bounded number a call.
local group_maintenance = {strangers = false}
local FOLLOWING = {p = 's', s = 'o', o = 'p'}

-- Whether a seat is rightly held. What is in the line by its seat may have been taken by another library's worker.
function group_maintenance.is_held(g, id, in_line)
  local key = P .. id
  if call('EXISTS', key) == 0 or call('ZSCORE', P .. K.completed, id) or call('ZSCORE', P .. K.failed, id) then return false end
  if groups.is_parked(id) or type(redis.pcall('ZSCORE', P .. K.waiting_children, id)) == 'string' then return false end
  local runs = call('EXISTS', key .. K.lock) == 1
  group_maintenance.strangers = group_maintenance.strangers or runs
  if in_line and runs then
    call('ZREM', P .. K.seats, g.name .. groups.IN_LINE .. id)
    call('ZADD', P .. K.seats, 0, g.name .. groups.STARTED .. id)
    if g.max then groups.count_start(g) end
  end
  return true
end

-- Look at the seats of a group, but for those of jobs that run under a lease of ours. How many were looked at.
function group_maintenance.check_group(name)
  local g = groups.get(name)
  local seats, looked = call('ZRANGEBYLEX', P .. K.seats, g.first, '(' .. name .. '\3', 'LIMIT', 0, N.seats_checked), 0
  for i = 1, #seats do
    local in_line, id = seats[i]:sub(#name + 1, #name + 1) == groups.IN_LINE, seats[i]:sub(#name + 2)
    if not call('ZSCORE', P .. K.deadlines, id) then
      looked = looked + 1
      if not group_maintenance.is_held(g, id, in_line) then groups.give_up_seat(id, name) end
    end
  end
  groups.touch(name)
  return looked
end

-- Jobs that count as delayed and are in `delayed` no more were taken out of it by others. The last one looked at.
function group_maintenance.check_delayed(after)
  local members = call('ZRANGEBYLEX', P .. K.put_off, after == '' and '-' or '(' .. after, '+', 'LIMIT', 0, N.seats_per_claim)
  for i = 1, #members do
    if not call('ZSCORE', P .. K.delayed, members[i]:match('\1(.*)$')) then call('ZREM', P .. K.put_off, members[i]) end
  end
  return members[#members], #members
end

-- First those with parked jobs, then all that have seats, then the delayed jobs; the next call goes on where this one stops.
function group_maintenance.check_seats(most)
  if not groups.used() then return end
  local phase, name = (call('HGET', P .. K.toril, F.tended) or 'p'):match('^(.)(.*)$')
  local looked, rounds = 0, 0
  while looked < most and rounds < 3 do
    local count
    if phase == 'o' then
      name, count = group_maintenance.check_delayed(name)
    else
      name = groups.after(phase == 'p' and P .. K.parked or P .. K.seats, name)
      count = name and 1 + group_maintenance.check_group(name)
    end
    if name then
      looked = looked + count
    else
      phase, name, rounds = FOLLOWING[phase], '', rounds + 1
    end
  end
  call('HSET', P .. K.toril, F.tended, phase .. name)
  groups.flush()
end
