-- Dead letters: a page by the time of their failing, or those of some ids.
-- KEYS    the dead letters' base, the fleet's base
-- ARGV    now, `newest` or `oldest`, how many, the time and id after which it begins; or now, `of`, ids
-- Returns rows: id, when, the job's own payload, queue, job, cause, a reader's fields; for ids false where there is none;
--         of a page also how many bytes they have; if more than N.look, there may be others
-- Events  none
-- uses dead_letters
local rows = {}
if ARGV[2] == 'of' then
  for i = 3, #ARGV do rows[i - 2] = dead_letters.row(ARGV[i], call('ZSCORE', P .. K.letters, ARGV[i])) end
  return rows
end

local newest, most, score, last, bytes = ARGV[2] == 'newest', tonumber(ARGV[3]), ARGV[4], ARGV[5], 0
local verb, edge, offset = newest and 'ZREVRANGEBYSCORE' or 'ZRANGEBYSCORE', newest and '-inf' or '+inf', 0

-- Bytes decide, as in a sorted set; Lua's own comparison is that of the server's language.
local function is_after(id)
  for i = 1, math.max(#id, #last) do
    local a, b = id:byte(i) or -1, last:byte(i) or -1
    if a ~= b then return (a > b) ~= newest end
  end
  return false
end

while #rows < most do
  local found = call(verb, P .. K.letters, score, edge, 'WITHSCORES', 'LIMIT', offset, most)
  if #found == 0 then break end
  for i = 1, #found, 2 do
    local row = (tonumber(found[i + 1]) ~= tonumber(score) or is_after(found[i])) and dead_letters.row(found[i], found[i + 1])
    if row and #rows < most then
      rows[#rows + 1] = row
      for field = 3, 6 + N.record do bytes = bytes + (row[field] and #row[field] or 0) end
      if bytes > N.look then most = #rows end
    end
  end
  offset = offset + #found / 2
end
return {rows, bytes}
