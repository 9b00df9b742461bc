-- A job's options as its producer wrote them: read, never written again. Jobs of a queue share few sets of options.
local known_options, unreadable = {}, {}

local function options_of(text)
  local found = known_options[text or '{}']
  if not found then
    local fine, decoded = pcall(cjson.decode, text or '{}')
    fine = fine and type(decoded) == 'table'
    found, unreadable[text or '{}'] = fine and decoded or {}, not fine
    known_options[text or '{}'] = found
  end
  return found
end

-- Whether one can know what the producer wanted; what is not there wants nothing.
local function can_be_read(text)
  options_of(text)
  return not unreadable[text or '{}']
end

local function attempts_of(options)
  return math.max(1, as_number(options.attempts, N.attempts) or 1)
end

-- How many finished jobs to keep, and for how many ms; nil sets no bound. What is not said is kept, as BullMQ does.
local function keep_of(wish)
  if wish == true then return 0 end
  if type(wish) == 'table' then
    local age = tonumber(wish.age)
    return as_number(wish.count), as_number(age and age * 1000)
  end
  return type(wish) == 'number' and as_number(wish) or nil
end

-- What belongs to jobs that are removed, deleted together at the end of the step.
local gone = {}

-- include reserved
local function forget(id, sample)
  if is_reserved(id) then return end
  local n, key = #gone, P .. id
  gone[n + 1], gone[n + 2] = key, key .. K.lock
  if sample and sample.trusted then return end  -- see lib/bare
  gone[n + 3], gone[n + 4], gone[n + 5] = key .. K.logs, key .. K.dependencies, key .. K.processed
  gone[n + 6], gone[n + 7] = key .. K.child_failures, key .. K.unsuccessful
end

local function flush_gone()
  for first = 1, #gone, 7000 do
    call('DEL', unpack(gone, first, math.min(first + 6999, #gone)))
  end
  gone = {}
end
