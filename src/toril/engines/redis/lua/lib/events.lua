-- A queue's stream of events: adding to it, and trimming it.
-- needs nothing
local events = {}

-- One entry of the queue's stream; fields and values follow the word.
function events.add(...)
  call('XADD', EVENTS, '*', 'event', ...)
end

-- How many entries are kept. Any program can write there what is no number, and an entry that is refused for that would
-- leave the step half done.
function events.longest(most)
  return most and #most < 16 and most:find('^%d+$') and most or N.events
end

-- Call it once per script, after its entries.
function events.trim(most)
  call('XTRIM', EVENTS, 'MAXLEN', '~', events.longest(most))
end
