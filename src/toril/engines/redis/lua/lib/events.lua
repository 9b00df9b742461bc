-- One entry of the queue's stream; fields and values follow the word.
local function event(...)
  call('XADD', P .. K.events, '*', 'event', ...)
end

-- Once a script, after its entries.
local function trim_events(most)
  call('XTRIM', P .. K.events, 'MAXLEN', '~', tonumber(most) or N.events)
end
