-- include guard
-- include incoming
-- include marks
-- Letters, and what a load of jobs begins and ends with.

-- A letter: id, queue, job, cause, when it failed, attempts made, stalls, worker, what is shown of the reason, fields, kin,
-- log lines.
local function put_letter(letter)
  local place = D .. letter[1]
  if call('EXISTS', place) == 1 then
    left_out[#left_out + 1] = {letter[2], letter[3]}
    return
  end
  local time, time_text, name = now, NOW, nil
  call('HSET', place, unpack(letter[10]))
  name = call('HGET', place, F.name)
  QUEUE, now, NOW = letter[2], tonumber(letter[5]), letter[5]
  bury(letter[3], {name = name, made = tonumber(letter[6]), stalls = tonumber(letter[7]), worker = letter[8] ~= '' and letter[8]},
    letter[4], letter[9], {}, place)
  now, NOW = time, time_text
  if letter[11] ~= cjson.null then put_kin(place, letter[11]) end
  filled('RPUSH', place .. K.logs, letter[12])
end

-- All parcels, or none: ARGV from [5] on has kinds and parcels as JSON.
local function unload(put)
  local before, parcels, clashes = seen_before(), {}, {}
  if before then return {before, {}} end
  for i = 5, #ARGV, 2 do
    if ARGV[i] == 'letter' and not may_bury() then return redis.error_reply('TORILTAKEN by another program') end
  end
  for i = 5, #ARGV, 2 do
    local parcel = cjson.decode(ARGV[i + 1])
    parcels[#parcels + 1] = {ARGV[i], parcel}
    local numbered = ARGV[i] == 'job' and parcel[2]:find('^[1-9]%d*$')
    if numbered and call('EXISTS', base_of(parcel[1]) .. parcel[2]) == 1 then clashes[#clashes + 1] = {parcel[1], parcel[2]} end
  end
  if #clashes > 0 then return {'clash', clashes} end
  for i = 1, #parcels do put[parcels[i][1]](parcels[i][2]) end
  for base in pairs(bases) do
    at(base)
    mark_ready()
    mark_due()
  end
  has_arrived()
  return {'stored', left_out}
end
