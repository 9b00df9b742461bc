-- The first half of an exchange: what comes back. The first write is one that a full server allows, so that it allows
-- those that follow, and jobs can end.
if #settled == 0 then call('DEL', P .. K.lock) end
if #settled > 0 then
  local leaving = {}
  for n = 1, #settled do leaving[n] = ids[settled[n]] end
  leave_active(leaving, running)
  bare.note()
  for n = 1, #locks do gone[n] = locks[n] end
  running = running - #leaving
  call('ZREM', P .. K.deadlines, unpack(leaving))
  if call('TYPE', P .. K.stalled).ok == 'set' then call('SREM', P .. K.stalled, unpack(leaving)) end
  local parking = {}
  for n = 1, #settled do
    local at = first + (settled[n] - 1) * 7
    if ARGV[at + 2] == 'p' and ARGV[at + 3] ~= '[]' then
      parking[#parking + 1] = at
    else
      settle_one(ARGV[at], jobs[ARGV[at]], unpack(ARGV, at + 2, at + 6))
    end
  end
  flush_released()
  flush_endings()
  -- Who brings children may adopt a job that ends in this very step: all other ends are written before. The last one
  -- first, as each that need not rest goes to the very front.
  for n = #parking, 1, -1 do
    local at = parking[n]
    settle_one(ARGV[at], running_job(ARGV[at]), unpack(ARGV, at + 2, at + 6))
    flush_released()
    flush_endings()
  end
  groups.flush()
  if kinds.failed or groups.let_in_some then  -- some may run again, or others because of them
    moved, ready = true, call('LLEN', P .. K.wait)
    prioritized, delayed = call('ZCARD', P .. K.prioritized), call('ZCARD', P .. K.delayed)
  end
end
