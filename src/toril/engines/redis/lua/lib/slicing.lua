-- Minutes that are over are added to slices of 1, 3, 6 and 42 minutes, of which the last so many are kept, and to the sum of
-- all. Each is fields and numbers: F.waits and F.runs with a bucket behind it, F.of_name with a name, and others.
local figures = {}

-- What only some steps need, and so is defined by them alone.
function figures.book()
  local try, book = redis.pcall, {}
  local STEPS = {1, 3, 6, 42}

  -- Failures of so many names are told apart, the rest are F.of_others.
  function book.count_failures(key, name, count, most)
    local field = F.of_name .. name
    if #name > N.name or try('HEXISTS', key, field) ~= 1 then
      local names = #name <= N.name and tonumber(try('HGET', key, F.names)) or 0
      if #name > N.name or names >= most then
        field = F.of_others
      else
        try('HSET', key, F.names, names + 1)
      end
    end
    try('HINCRBY', key, field, count)
  end

  -- What was only noted is counted.
  function book.post()
    for field, count in pairs(noted()) do try('HINCRBY', P .. K.figures, field, string.format('%d', count)) end
    try('DEL', P .. K.figures_noted)
  end

  -- The slice with a minute's fields added; `before` is what its place held, maybe of a slice long ago.
  local function added(before, slice, fields)
    local fine, sum = pcall(cjson.decode, before)
    if not fine or type(sum) ~= 'table' or sum[F.minute] ~= slice then sum = {[F.minute] = slice, [F.names] = 0} end
    for field, count in pairs(fields) do
      if field:sub(1, 1) == F.of_name and not sum[field] then
        if sum[F.names] >= N.names then field = F.of_others else sum[F.names] = sum[F.names] + 1 end
      end
      sum[field] = (sum[field] or 0) + count
    end
    return cjson.encode(sum)
  end

  -- Add what was counted to a slice, or where that has no length to the sum of all.
  function book.add(step, slice, fields)
    if step > 0 then
      local place = step .. ':' .. slice % N.slices
      local before = try('HGET', P .. K.figures_past, place)
      return try('HSET', P .. K.figures_past, place, added(type(before) == 'string' and before or '', slice, fields))
    end
    for field, count in pairs(fields) do
      if field:sub(1, 1) == F.of_name then
        book.count_failures(P .. K.figures_all, field:sub(2), count, N.all_names)
      else
        try('HINCRBY', P .. K.figures_all, field, count)
      end
    end
  end

  function book.put_by(minute)
    book.post()
    local flat, fields = try('HGETALL', P .. K.figures), {}
    for i = 1, #flat, 2 do fields[flat[i]] = tonumber(flat[i + 1]) end
    fields[F.minute], fields[F.names] = nil, nil
    call('DEL', P .. K.figures)
    for _, step in ipairs(STEPS) do book.add(step, math.floor(minute / step), fields) end
    book.add(0, 0, fields)
  end

  return book
end
