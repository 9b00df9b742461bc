-- settle: what the holders of leases hand in.

-- name: held
SELECT j.key, j.id AS chosen, j.name, j.priority, j.attempts AS max_attempts, j.attempts_made, j.stalls, j.starts + 1 AS starts,
    a.fence, j.added_at, a.started_at, a.worker, j.logs, j.options AS options_text, j.delay, a.alone, a.cancelling,
    a.token, a.deadline
FROM toril.texts($1) v JOIN toril.active a ON a.key = v::bigint JOIN toril.jobs j ON j.key = a.key

-- name: keys
SELECT i.id, i.key FROM toril.texts($1) v JOIN toril.ids i ON i.queue = $2 AND i.id = v
