-- Jobs of groups that are looked for, and taken out of where they are.

-- The job of a member of `parked`.
function groups.job_of(member)
  return member:match('^[^\1]*\1' .. ('%d'):rep(24) .. '[ws](.*)$')
end

-- Its group, and how it would stand there if it were parked: as one that has stalled, or as others.
local function marks_of(id)
  local f = call('HMGET', P .. id, F.group, F.order, F.priority)
  if f[1] then return f[1], parked_as(f[1], f[2], f[3], 'w', id), parked_as(f[1], f[2], f[3], 's', id) end
end

function groups.is_parked(id)
  local name, plain, suspect = marks_of(id)
  return name and (call('ZSCORE', P .. K.parked, plain) or call('ZSCORE', P .. K.parked, suspect))
end

-- True: it was parked, and stands nowhere else.
function groups.leave(id)
  local name, plain, suspect = marks_of(id)
  if not name then return false end
  local g = groups.of(name)
  if call('ZREM', P .. K.parked, plain, suspect) > 0 then
    if g.seats then g.parked = g.parked - 1 end
    return true
  end
  groups.give_up_seat(id, name)
  return false
end
