-- inspector: what is read. Nothing here writes.

-- name: job
SELECT j.key, j.id AS chosen, j.name, j.data, j.place, j.rank, j.attempts AS max_attempts, j.attempts_made, j.stalls,
    j.starts + (a.key IS NOT NULL)::int AS starts, coalesce(a.fence, j.fence) AS fence, j.priority, j.delay, j.expires_at,
    j.options AS options_text, j.metadata, j.checkpoint, j.progress, j.result, j.failure, j.stall_cause, a.cancelling,
    coalesce(a.worker, j.worker) AS worker, j.added_at, coalesce(a.started_at, j.started_at) AS started_at,
    j.finished_at, j.grp AS group_name, j.logs, a.deadline, r.text AS rest
FROM toril.jobs j LEFT JOIN toril.active a ON a.key = j.key LEFT JOIN toril.rests r ON r.job = j.key WHERE j.key = $1

-- name: events
SELECT key, time, kind, size, jobs, details FROM toril.events_between($1, $2, $3)

-- name: first_events
SELECT key, size FROM toril.events_between($1, $2, 1) LIMIT 1

-- name: declared
SELECT d.text, count(*), max(d.at) FROM toril.declared d JOIN toril.workers w ON w.id = d.worker
WHERE d.queue = $1 AND w.till > $2 GROUP BY d.text

-- name: runs
SELECT key, id, name, cause, added_at, started_at, finished_at, attempts_made, stalls, worker, text, whole, subject,
    parent
FROM toril.runs_between($1, $2) ORDER BY key DESC LIMIT $3

-- name: runs_of
SELECT id, finished_at, cause, text, whole FROM toril.runs_between($1, $2)
WHERE id IN (SELECT toril.texts($3)) ORDER BY key

-- name: arrivals
SELECT name, mark FROM toril.await_jobs($1)

-- name: calls
SELECT p.worker, p.count || '.' || p.time FROM toril.texts($1) v JOIN toril.pokes p ON p.worker = v

-- name: unfinished
SELECT coalesce(sum(s.waiting + s.suspects + s.parked + s.prioritized + s.active + s.delayed + s.waiting_children), 0)::bigint
FROM toril.queues q
    JOIN LATERAL (SELECT * FROM toril.standing WHERE queue = q.key ORDER BY version DESC LIMIT 1) s ON true

-- name: starts_since
SELECT coalesce(sum(count), 0)::bigint, min(time) FROM toril.starts WHERE queue = $1 AND time > $2

-- name: runs_alone
SELECT 1 FROM toril.active WHERE key = $1 AND alone = 1
