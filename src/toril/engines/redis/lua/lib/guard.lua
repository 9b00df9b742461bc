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

-- What a job that ends writes to.
local function wrong_for_ending(ending)
  if ending == 'completed' then
    return wrong('zset', K.completed, K.ages, K.results_till) or wrong('list', K.runs_completed)
      or wrong('hash', K.metrics_completed, K.results)
  end
  return wrong('zset', K.failed, K.ages, K.results_till) or wrong('list', K.runs_failed)
    or wrong('hash', K.metrics_failed, K.results)
end
