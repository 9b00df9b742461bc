-- A script does not roll back: keys of a wrong type must be found before the first write.
local TYPES = {
  [K.wait] = 'list', [K.active] = 'list', [K.prioritized] = 'zset', [K.delayed] = 'zset', [K.completed] = 'zset',
  [K.failed] = 'zset', [K.marker] = 'zset', [K.events] = 'stream', [K.meta] = 'hash', [K.toril] = 'hash',
  [K.deadlines] = 'zset', [K.suspects] = 'zset', [K.pc] = 'string', [K.id] = 'string', [K.stalled] = 'set',
  [K.runs_completed] = 'list', [K.runs_failed] = 'list', [K.ages] = 'zset', [K.results] = 'hash',
  [K.results_till] = 'zset', [K.metrics_completed] = 'hash', [K.metrics_failed] = 'hash', [K.limiter] = 'string',
  [K.starts] = 'zset',
}

-- An error reply if one of these keys is not what it should be.
local function wrong(names)
  for i = 1, #names do
    local found = call('TYPE', P .. names[i]).ok
    if found ~= 'none' and found ~= TYPES[names[i]] then
      return redis.error_reply('TORILTYPE ' .. P .. names[i] .. ' is a ' .. found .. ', not a ' .. TYPES[names[i]])
    end
  end
end
