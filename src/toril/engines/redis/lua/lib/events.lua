local EVENTS = P .. K.events

-- One entry of the queue's stream; fields and values follow the word.
local function event(...)
  call('XADD', EVENTS, '*', 'event', ...)
end

-- How many entries are kept. Any program can write there what is no number, and an entry that is refused for that would
-- leave the step half done.
local function longest_of(most)
  return most and #most < 16 and most:find('^%d+$') and most or N.events
end

-- Once a script, after its entries.
local function trim_events(most)
  call('XTRIM', EVENTS, 'MAXLEN', '~', longest_of(most))
end
