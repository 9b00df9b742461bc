-- The beginning of every script: its keys, its time, and checks of the types of keys.
-- needs nothing
-- P and W are what the queue's and the fleet's keys begin with, EVENTS is the queue's stream, PREFIX stands before the
-- names of queues. `now` is the server's clock, unless the caller sent a time: then keys that expire outlive it by
-- `slack`, and what counts is the time written beside them.
local context = {}
local P, W = KEYS[1], KEYS[2]
local EVENTS, PREFIX = P .. K.events, W:sub(1, -8)
local call, try = redis.call, redis.pcall
local now, slack, NOW = tonumber(ARGV[1]), N.slack, ARGV[1]
-- Redis formats numbers with `%.17g`, which is slow, so the texts of frequent numbers are made once.
-- Not with `%d`: on a 32-bit server, times in ms would not fit.
if now then
  NOW = string.format('%.0f', now)
else
  local time = call('TIME')
  local ms = math.floor(time[2] / 1000)
  now, slack, NOW = time[1] * 1000 + ms, 0, time[1] .. string.format('%03d', ms)
end

-- A number of a hash or of options, which any program may have written: nil unless it is one from 0 on. A script does not
-- roll back, and what is not a number, or without an end, would stop it half-way.
function context.number(value, most)
  local found = tonumber(value or nil)
  if found and found >= 0 then return math.min(math.floor(found), most or N.largest) end
end

-- A script does not roll back: keys of a wrong type must be found before the first write. What is read first anyway needs
-- no look of its own.
function context.wrong(kind, ...)
  local names = {...}
  for i = 1, #names do
    local found = call('TYPE', P .. names[i]).ok
    if found ~= 'none' and found ~= kind then
      return redis.error_reply('TORILTYPE ' .. P .. names[i] .. ' is a ' .. found .. ', not a ' .. kind)
    end
  end
end

-- The same check if the answer is nearly always yes: a number costs less than the name of a type.
function context.fits(command, name)
  return type(redis.pcall(command, P .. name)) == 'number'
end

-- Whether this id gives a key of the layout. Any program can put such a word into a list.
function context.is_reserved(id)
  if id:find('^%d+$') then return false end
  local first, rest = id:match('^([^:]*):?(.*)$')
  if first == 'repeat' and rest:find(':', 1, true) then return false end
  return first == '' or N.reserved:find(':' .. first .. ':', 1, true) ~= nil
end
