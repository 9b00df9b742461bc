-- include mending
-- include dedup
-- include fleet
-- How faults of what belongs to jobs are mended: locks, parents, deduplication, suspects, workers.

function MEND.stray_lock(id)
  call('DEL', P .. id .. K.lock)
  call('SREM', P .. K.stalled, id)
  call('ZREM', P .. K.deadlines, id)
end

function MEND.missing_marker() end  -- it is set after all of them
function MEND.lost_job() end  -- it is taken back by `recover`

function MEND.stuck_parent(id)
  call('DEL', P .. id .. K.dependencies)
  free({base = P, id = id, key = P .. id}, K.waiting_children, 'waiting-children')
end

-- As if its owner ended now: a job that was kept for that moment is made.
function MEND.stale_dedup(key) let_go(key, call('GET', key_of(key))) end

function MEND.stale_suspect(id) call('ZREM', P .. K.suspects, id) end

function MEND.dead_worker(worker) forget_worker(worker) end
