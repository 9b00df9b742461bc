-- What is set for the queue, and what Toril counts in it.
local meta = call('HMGET', P .. K.meta, F.is_paused, F.concurrency, F.rate_max, F.rate_ms, F.max_events, F.version)
local own = call('HMGET', P .. K.toril, F.claims, F.window, F.expiring, F.held_till, F.grouped, F.groups_set,
  F.groups_declared, F.tended_at, F.figures_minute, F.completed_minute, F.beside)
