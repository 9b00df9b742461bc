-- Groups by their names: those that have jobs which have not ended, and those with limits of their own.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, the last name of the page before, how many
-- Returns rows, see `groups.row`
-- Events  none
-- uses groups
local last, most, rows = ARGV[2], tonumber(ARGV[3]), {}
local own = call('HKEYS', P .. K.group_own)
table.sort(own)
local at = 1

local function after(key, name)
  local member = call('ZRANGEBYLEX', key, name == '' and '-' or '(' .. name .. '\3', '+', 'LIMIT', 0, 1)[1]
  return member and member:match('^([^\1\2]*)')
end

while #rows < most do
  while own[at] and own[at] <= last do at = at + 1 end
  local following = own[at]
  for _, key in ipairs({P .. K.parked, P .. K.seats, P .. K.put_off}) do
    local name = after(key, last)
    if name and (not following or name < following) then following = name end
  end
  if not following then break end
  last = following
  rows[#rows + 1] = groups.row(last)
end
return rows
