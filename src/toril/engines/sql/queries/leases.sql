-- renew, report, recover: what holds while a lease holds.

-- name: renew
UPDATE active SET deadline = ? WHERE key = ? AND token = ? AND deadline > ?

-- name: cancelling
SELECT cancelling FROM active WHERE key = ?

-- name: holds
SELECT 1 FROM active WHERE key = ? AND token = ? AND deadline > ?

-- name: progress
UPDATE jobs SET progress = ? WHERE key = ?

-- name: data
UPDATE jobs SET data = ? WHERE key = ?

-- name: checkpoint
UPDATE jobs SET checkpoint = ? WHERE key = ?

-- name: logs
SELECT logs, options FROM jobs WHERE key = ?

-- name: log
INSERT INTO logs (key, number, line) VALUES (?, ?, ?)

-- name: count_logs
UPDATE jobs SET logs = ? WHERE key = ?

-- name: trim_logs
DELETE FROM logs WHERE key = ? AND number <= ?

-- name: overdue
SELECT j.key, j.id AS chosen, j.name, j.priority, j.attempts AS max_attempts, j.attempts_made, j.stalls, j.starts + 1 AS starts,
    a.fence, j.added_at, a.started_at, a.worker, j.logs, j.options AS options_text, a.alone, a.max_stalls, a.cancelling
FROM active a JOIN jobs j ON j.key = a.key
WHERE a.queue = ? AND a.deadline <= ? ORDER BY a.deadline LIMIT ?

-- name: one
SELECT j.key, j.id AS chosen, j.name, j.priority, j.attempts AS max_attempts, j.attempts_made, j.stalls, j.starts + 1 AS starts,
    a.fence, j.added_at, a.started_at, a.worker, j.logs, j.options AS options_text, a.alone, a.max_stalls, a.cancelling
FROM active a JOIN jobs j ON j.key = a.key
WHERE a.key = ? AND a.token = ?

-- name: next_deadline
SELECT min(deadline) FROM active WHERE queue = ?
