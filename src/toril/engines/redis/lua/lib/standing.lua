-- include turns
-- How the queue stands when an exchange begins: read once, and so of the right types.
groups.note(own[5], own[6], own[7])
local running, ready = call('LLEN', P .. K.active), call('LLEN', P .. K.wait)
local prioritized, delayed = call('ZCARD', P .. K.prioritized), call('ZCARD', P .. K.delayed)
local suspects = call('ZCARD', P .. K.suspects)
local moved = suspects > 0 or delayed > 0  -- then what is ready has to be counted again after the claim
local most_running = tonumber(meta[2] or nil)
most_running = most_running and (most_running < 0 and 0 or as_number(most_running))
