-- A dead letter as it stands in its queue.

-- The job's own payload out of the letter's.
local function own_data(data, head, kept)
  if kept then return kept end
  head = tonumber(head or nil)
  return head and head > 0 and data:sub(head + 1, -2) or data
end

local function letter_row(letter, when)
  local f = when and redis.pcall('HMGET', P .. letter, F.data, F.letter_head, F.letter_data, F.letter_queue, F.letter_job,
    F.letter_cause, F.record_fields)
  if not f or f.err or not f[4] then return false end
  local row = {letter, when, own_data(f[1] or '', f[2], f[3]), f[4], f[5], f[6]}
  for i = 7, 6 + N.record do row[i] = f[i] end
  return row
end
