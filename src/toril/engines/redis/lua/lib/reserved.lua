-- Whether a key made of this id is the layout's own. Any program can put such a word into a line.
local function is_reserved(id)
  if id:find('^%d+$') then return false end
  local first, rest = id:match('^([^:]*):?(.*)$')
  if first == 'repeat' and rest:find(':', 1, true) then return false end
  return first == '' or N.reserved:find(':' .. first .. ':', 1, true) ~= nil
end
