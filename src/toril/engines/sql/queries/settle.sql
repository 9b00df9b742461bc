-- settle: what the holders of leases hand in. One row for each job that is running; `a` holds what the claim wrote.

-- name: held
SELECT j.key, j.id AS chosen, j.name, j.priority, j.attempts AS max_attempts, j.attempts_made, j.stalls, j.starts + 1 AS starts,
    a.fence, j.added_at, a.started_at, a.worker, j.logs, j.options AS options_text, j.delay, a.alone, a.cancelling,
    a.token, a.deadline
FROM json_each(?) v CROSS JOIN active a ON a.key = v.value CROSS JOIN jobs j ON j.key = a.key

-- name: keys
SELECT i.id, i.key FROM json_each(?) v CROSS JOIN ids i ON i.queue = ? AND i.id = v.value

-- name: exists
SELECT 1 FROM jobs WHERE key = ? AND coalesce(id, ?) = ?
