-- Jobs that are handed in, their ids, and these as a set; nil if one is not as usual: see lib/usual.
local function usual_endings()
  local ids, tokens, found, seen = {}, {}, {}, {}
  for i = 1, count do
    local at = first + (i - 1) * 7
    if ARGV[at + 2] ~= 'c' or seen[ARGV[at]] or is_reserved(ARGV[at]) then return end
    ids[i], tokens[i], seen[ARGV[at]] = ARGV[at], ARGV[at + 1], true
  end
  local held = holds(ids, tokens)
  for i = 1, count do
    if not held[i] then return end
    local f = call('HMGET', P .. ids[i], F.name, F.added_at, F.started_at, F.attempts_made, F.stalls, F.worker, F.opts, F.parent,
      F.deferred, F.group, F.starts, F.ready, F.parked)
    local options = options_of(f[7])
    local own = options.toril
    if not f[1] or f[8] or f[9] or f[10] or options.removeOnComplete ~= true or options.de then return end
    if own and (type(own) ~= 'table' or own.resultTtl) then return end
    found[i] = {
      name = f[1], added = f[2], started = f[3], made = (as_number(f[4]) or 0) + 1, stalls = as_number(f[5]) or 0,
      worker = f[6], options = f[7], subject = own and own.subject, starts = f[11], ready = f[12], parked = f[13],
      bare = bare.is(ids[i], options, f[11], f[13]),
    }
  end
  return found, ids, seen
end

-- Those to be claimed, and whether there are more; nil if one is not as usual. One that stands in the line twice, or has
-- just ended, must be looked at again after what is done to it first.
local function usual_next(seen)
  local line, found = call('LRANGE', P .. K.wait, string.format('%d', -want - 1), '-1'), {}
  for i = #line, math.max(1, #line - want + 1), -1 do
    local row, name, options, starts = redis.pcall('HGETALL', P .. line[i]), nil, nil, nil
    for j = 1, #row, 2 do
      local field, value = row[j], row[j + 1]
      if field == F.name then name = value
      elseif field == F.opts then options = value
      elseif field == F.starts then starts = value
      elseif field == F.cancelling or field == F.deferred or field == F.group then return
      elseif field == F.expires and (tonumber(value) or now + 1) <= now then return end
    end
    if not name or seen[line[i]] or not can_be_read(options) then return end
    seen[line[i]], found[#found + 1] = true, {line[i], row, starts, 0}
  end
  return found, #line > want
end
