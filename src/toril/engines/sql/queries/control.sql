-- control: what people and programs do to jobs and queues by hand.

-- name: jobs
SELECT j.key, j.id AS chosen, j.name, j.priority, j.attempts AS max_attempts, j.attempts_made, j.stalls,
    j.starts + (a.key IS NOT NULL) AS starts, coalesce(a.fence, j.fence) AS fence, j.added_at, j.started_at,
    coalesce(a.worker, j.worker) AS worker, j.logs, j.options AS options_text, j.place, j.rank,
    a.key IS NOT NULL AS running, r.job IS NOT NULL AS rests
FROM json_each(?) v JOIN jobs j ON j.key = v.value LEFT JOIN active a ON a.key = j.key LEFT JOIN rests r ON r.job = j.key

-- name: ask_to_stop
UPDATE active SET cancelling = ? WHERE key = ?

-- name: call
INSERT INTO pokes (worker, count, time) VALUES (?, 1, ?)
ON CONFLICT DO UPDATE SET count = count + 1, time = excluded.time

-- name: renew
UPDATE jobs SET attempts_made = 0, stalls = 0, started_at = NULL, finished_at = NULL, worker = NULL, result = NULL,
    failure = NULL, errors = NULL, stall_cause = NULL, progress = NULL, delay = 0, expires_at = NULL
WHERE key = ?

-- name: set_data
UPDATE jobs SET data = ? WHERE key = ?

-- name: set_priority
UPDATE jobs SET priority = ? WHERE key = ?

-- name: set_delay
UPDATE jobs SET delay = ? WHERE key = ?

-- name: of_place
SELECT j.key, j.id, j.logs, l.rank FROM line l JOIN jobs j ON j.key = l.key
WHERE l.queue = ? AND l.place = ? ORDER BY l.rank LIMIT ?

-- name: drainable
SELECT j.key, j.id, j.logs, l.rank FROM line l JOIN jobs j ON j.key = l.key
WHERE l.key NOT IN (SELECT run FROM schedules WHERE queue = ? AND run IS NOT NULL) AND l.queue = ? AND l.place = ?
    AND NOT EXISTS (SELECT 1 FROM rests r WHERE r.job = l.key)
ORDER BY l.rank LIMIT ?

-- name: entered_by
SELECT j.key, j.id, j.logs, l.rank FROM line l JOIN jobs j ON j.key = l.key
WHERE l.queue = ? AND l.place = ? AND l.rank <= ? ORDER BY l.rank LIMIT ?

-- name: added_by
SELECT j.key, j.id, j.logs, l.rank FROM line l JOIN jobs j ON j.key = l.key
WHERE l.key NOT IN (SELECT run FROM schedules WHERE queue = ? AND run IS NOT NULL) AND l.queue = ? AND l.place = ?
    AND j.added_at <= ? AND NOT EXISTS (SELECT 1 FROM rests r WHERE r.job = l.key) ORDER BY l.rank LIMIT ?

-- name: running
SELECT j.key, j.id, j.logs FROM active a JOIN jobs j ON j.key = a.key WHERE a.queue = ? LIMIT ?

-- name: forget_events
DELETE FROM events WHERE key > ? AND key < ?

-- name: forget_runs
DELETE FROM runs WHERE key > ? AND key < ?

-- name: forget_minutes
DELETE FROM minutes WHERE queue = ?

-- name: forget_slices
DELETE FROM slices WHERE queue = ?

-- name: forget_results
DELETE FROM results WHERE queue = ?

-- name: forget_starts
DELETE FROM starts WHERE queue = ?

-- name: forget_dedups
DELETE FROM dedups WHERE queue = ?

-- name: forget_schedules
DELETE FROM schedules WHERE queue = ?

-- name: forget_ageing
DELETE FROM ageing WHERE queue = ?
