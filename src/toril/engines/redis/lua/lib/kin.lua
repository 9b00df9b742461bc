-- What a parent knows of its children. What holds it back while its flow is added is none.
local function family_of(key, few)
  local open, first = call('SCARD', key .. K.dependencies), {}
  if open > 0 then
    if call('SISMEMBER', key .. K.dependencies, key .. K.hold) == 1 then open = open - 1 end
    for _, child in ipairs(call('SRANDMEMBER', key .. K.dependencies, few + 1)) do
      if child ~= key .. K.hold and #first < few then first[#first + 1] = child end
    end
  end
  table.sort(first)
  return {
    open, call('HLEN', key .. K.processed), call('HLEN', key .. K.child_failures), call('ZCARD', key .. K.unsuccessful), first,
  }
end
