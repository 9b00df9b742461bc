-- Attempts of the minute under way, two bytes each: the buckets of the time that the job waited and of the one that it ran,
-- or N.unknown. A step that settles one job so writes once, and what it writes is counted with many others.
local function noted()
  local text, waits, runs, counts = redis.pcall('GET', P .. K.figures_noted), {}, {}, {}
  if type(text) ~= 'string' then return counts end
  for from = 1, #text, 1000 do
    local bytes = {text:byte(from, from + 999)}
    for i = 2, #bytes, 2 do
      local wait, run = bytes[i - 1], bytes[i]
      waits[wait], runs[run] = (waits[wait] or 0) + 1, (runs[run] or 0) + 1
    end
  end
  waits[N.unknown], runs[N.unknown] = nil, nil
  for bucket, count in pairs(waits) do counts[string.format(F.waits .. '%d', bucket)] = count end
  for bucket, count in pairs(runs) do counts[string.format(F.runs .. '%d', bucket)] = count end
  return counts
end
