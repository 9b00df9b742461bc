-- A group's sliding rate: a list of times and counts. What is let in may start at any moment, and counts as if it had.

local function starts_of(g)
  if g.starts then return g.starts end
  local text, kept = call('HGET', P .. K.group_starts, g.name), {}
  local all = text and cmsgpack.unpack(text) or {}
  for i = 1, #all, 2 do
    if all[i] > now - g.ms then kept[#kept + 1], kept[#kept + 2] = all[i], all[i + 1] end
  end
  g.starts = kept
  return kept
end

function groups.rate_left(g)
  if not g.left then
    local starts, count = starts_of(g), 0
    for i = 2, #starts, 2 do count = count + starts[i] end
    g.left = g.max - count - call('ZLEXCOUNT', P .. K.seats, g.first, g.last)
  end
  if g.left < 1 then g.till = g.starts[1] and g.starts[1] + g.ms end
  return math.max(0, g.left)
end

-- Large limits are counted in a hundredth of the window, rounded up, so that the limit is never exceeded.
function groups.count_start(g)
  local starts, slot = starts_of(g), now
  if g.max > N.exact then
    local width = math.max(1, math.floor(g.ms / 100))
    slot = math.ceil(now / width) * width
  end
  local n = #starts
  if starts[n - 1] == slot then starts[n] = starts[n] + 1 else starts[n + 1], starts[n + 2] = slot, 1 end
  g.counted = true
  groups.touch(g.name)
end

function groups.save_starts(g)
  if g.counted then call('HSET', P .. K.group_starts, g.name, cmsgpack.pack(g.starts)) end
  g.counted = false
end

-- Whether a group has to be looked at by the next claim.
function groups.is_due() return groups.used() and call('ZCOUNT', P .. K.till, '-inf', now) > 0 end

-- Forget the starts of groups whose window is over, some a round. How many.
function groups.forget_starts()
  local found, old = call('HSCAN', P .. K.group_starts, call('HGET', P .. K.toril, F.scanned) or '0', 'COUNT', N.passes), {}
  for i = 1, #found[2], 2 do
    local starts, ms = cmsgpack.unpack(found[2][i + 1]), groups.of(found[2][i]).ms
    if not ms or (starts[#starts - 1] or 0) <= now - ms then old[#old + 1] = found[2][i] end
  end
  if #old > 0 then call('HDEL', P .. K.group_starts, unpack(old)) end
  call('HSET', P .. K.toril, F.scanned, found[1])
  return #old
end
