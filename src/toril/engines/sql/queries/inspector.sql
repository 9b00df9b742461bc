-- inspector: what is read. Nothing here writes.

-- name: queues
SELECT name FROM queues ORDER BY name

-- name: job
SELECT j.key, j.id AS chosen, j.name, j.data, j.place, j.rank, j.attempts AS max_attempts, j.attempts_made, j.stalls,
    j.starts + (a.key IS NOT NULL) AS starts, coalesce(a.fence, j.fence) AS fence, j.priority, j.delay, j.expires_at,
    j.options AS options_text, j.metadata, j.checkpoint, j.progress, j.result, j.failure, j.stall_cause, a.cancelling,
    coalesce(a.worker, j.worker) AS worker, j.added_at, coalesce(a.started_at, j.started_at) AS started_at,
    j.finished_at, j.grp AS group_name, j.logs, a.deadline, r.text AS rest
FROM jobs j LEFT JOIN active a ON a.key = j.key LEFT JOIN rests r ON r.job = j.key WHERE j.key = ?

-- name: running
SELECT key FROM active WHERE queue = ? AND key > ? ORDER BY key LIMIT ?

-- name: forward
SELECT key, rank FROM line
WHERE queue = ? AND place = ? AND (rank, key) > (?, ?) AND moved <= ? ORDER BY rank, key LIMIT ?

-- name: backward
SELECT key, rank FROM line
WHERE queue = ? AND place = ? AND (rank, key) < (?, ?) AND moved <= ? ORDER BY rank DESC, key DESC LIMIT ?

-- name: logs
SELECT number, line FROM logs WHERE key = ? AND number > ? ORDER BY number LIMIT ?

-- name: errors
SELECT errors, failure, attempts_made, finished_at FROM jobs WHERE key = ?

-- name: events
SELECT key, time, kind, size, jobs, details FROM events WHERE key > ? AND key <= ? ORDER BY key LIMIT ?

-- name: first_events
SELECT key, size FROM events WHERE key > ? AND key <= ? ORDER BY key LIMIT 1

-- name: workers
SELECT id, seen_at, orders, beat FROM workers WHERE till > ? ORDER BY id

-- name: declared
SELECT d.text, count(*), max(d.at) FROM declared d JOIN workers w ON w.id = d.worker
WHERE d.queue = ? AND w.till > ? GROUP BY d.text

-- name: runs
SELECT key, id, name, cause, added_at, started_at, finished_at, attempts_made, stalls, worker, text, whole, subject,
    parent
FROM runs WHERE key > ? AND key < ? ORDER BY key DESC LIMIT ?

-- name: runs_of
SELECT id, finished_at, cause, text, whole FROM runs
WHERE key > ? AND key < ? AND id IN (SELECT value FROM json_each(?)) ORDER BY key

-- name: result
SELECT cause, text FROM results WHERE queue = ? AND id = ? AND till > ?

-- name: arrivals
SELECT q.name, q.key || '.' || q.arrivals FROM json_each(?) v JOIN queues q ON q.name = v.value

-- name: calls
SELECT p.worker, p.count || '.' || p.time FROM json_each(?) v JOIN pokes p ON p.worker = v.value

-- name: unfinished
SELECT coalesce(sum(waiting + suspects + parked + prioritized + active + delayed + waiting_children), 0) FROM queues

-- What a job has to wait for.

-- name: place_of
SELECT place, rank FROM jobs WHERE key = ?

-- name: ahead
SELECT count(*) FROM line WHERE queue = ? AND place = ? AND rank < ?

-- name: first_running
SELECT a.key, j.id FROM active a JOIN jobs j ON j.key = a.key WHERE a.queue = ? ORDER BY a.deadline LIMIT 10

-- name: starts_since
SELECT coalesce(sum(count), 0), min(time) FROM starts WHERE queue = ? AND time > ?

-- name: runs_alone
SELECT 1 FROM active WHERE key = ? AND alone
