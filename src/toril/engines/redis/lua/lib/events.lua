local EVENTS = P .. K.events

-- One entry of the queue's stream; fields and values follow the word.
local function event(...)
  call('XADD', EVENTS, '*', 'event', ...)
end

-- Once a script, after its entries.
local function trim_events(most)
  call('XTRIM', EVENTS, 'MAXLEN', '~', tonumber(most) or N.events)
end
