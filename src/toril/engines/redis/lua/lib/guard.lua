-- A script does not roll back: keys of a wrong type must be found before the first write. What is read first anyway needs
-- no look of its own.
local function wrong(kind, ...)
  local names = {...}
  for i = 1, #names do
    local found = call('TYPE', P .. names[i]).ok
    if found ~= 'none' and found ~= kind then
      return redis.error_reply('TORILTYPE ' .. P .. names[i] .. ' is a ' .. found .. ', not a ' .. kind)
    end
  end
end

-- The same question where the answer is nearly always yes: a number costs less than the name of a type.
local function fits(command, name)
  return type(redis.pcall(command, P .. name)) == 'number'
end

-- What a job that ends writes to; where it is kept, or its result is, also to that.
local function wrong_for_ending(ending, kept)
  local zset, runs, figures = K.failed, K.runs_failed, K.metrics_failed
  if ending == 'completed' then zset, runs, figures = K.completed, K.runs_completed, K.metrics_completed end
  local mistake = wrong('list', runs, ending == 'failed' and K.runs_cancelled or nil) or wrong('hash', figures)
  if mistake or not kept then return mistake end
  return wrong('zset', zset, K.ages, K.results_till) or wrong('hash', K.results)
end
