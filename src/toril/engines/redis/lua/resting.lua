-- Jobs that rest, by the time until which they do.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, the name of a signal that they wait for or nothing, how many; where the last page ended: score, id
-- Returns the records; their bytes; score and id up to which was looked, nothing at the end
-- Events  none
-- uses jobs steps
local name, most, found, bytes, looked = ARGV[2], tonumber(ARGV[3]), {}, 0, 0
local score, last = ARGV[4], ARGV[5]
local first_score, first_id = score, last

local function waits_for(text)
  for _, reason in ipairs(cjson.decode(text)['for']) do
    for _, wait in ipairs(reason[4]) do
      if wait[1] == name then return true end
    end
  end
end

local from, offset = first_score == '' and '-inf' or first_score, 0
while true do
  local ids = call('ZRANGEBYSCORE', P .. K.resting, from, '+inf', 'WITHSCORES', 'LIMIT', offset, N.looks)
  if #ids == 0 then return {found, bytes, false} end
  for i = 1, #ids, 2 do
    local id = ids[i]
    if not (ids[i + 1] == first_score and id <= first_id) then
      if #found >= most or bytes > N.look or looked >= N.looked_at then return {found, bytes, {score, last}} end
      local text, place = steps.rest_of(id)
      if text and (name == '' or waits_for(text)) then
        local record = jobs.record(id, place, place == 'delayed' and call('ZSCORE', P .. K.delayed, id))
        if record then found[#found + 1], bytes = record, bytes + jobs.record_size(record) end
      end
      looked, score, last = looked + 1, ids[i + 1], id
    end
  end
  offset = offset + #ids / 2
end
