-- The first half of an exchange: what comes back. The first write is one that a full server allows, so that it allows
-- those that follow, and jobs can end.
if #settled == 0 then call('DEL', P .. K.lock) end
if #settled > 0 then
  local leaving = {}
  for n = 1, #settled do leaving[n] = ids[settled[n]] end
  leave_active(leaving, running)
  for n = 1, #locks do gone[n] = locks[n] end
  running = running - #leaving
  call('ZREM', P .. K.deadlines, unpack(leaving))
  if call('TYPE', P .. K.stalled).ok == 'set' then call('SREM', P .. K.stalled, unpack(leaving)) end
  for n = 1, #settled do
    local at = first + (settled[n] - 1) * 7
    settle_one(ARGV[at], jobs[ARGV[at]], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5], ARGV[at + 6])
  end
  flush_released()
  flush_endings()
  groups.flush()
  if kinds.failed or groups.let_in_some then  -- some may run again, or others because of them
    moved, ready = true, call('LLEN', P .. K.wait)
    prioritized, delayed = call('ZCARD', P .. K.prioritized), call('ZCARD', P .. K.delayed)
  end
end
