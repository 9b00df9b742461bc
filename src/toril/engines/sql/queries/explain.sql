-- explain: what a job has to wait for.

-- name: place
SELECT place, rank FROM jobs WHERE key = ?

-- name: before
SELECT count(*) FROM line WHERE queue = ? AND place = ? AND rank < ?

-- name: running
SELECT a.key, j.id FROM active a JOIN jobs j ON j.key = a.key WHERE a.queue = ? ORDER BY a.deadline LIMIT 10

-- name: starts
SELECT coalesce(sum(count), 0), min(time) FROM starts WHERE queue = ? AND time > ?

-- name: runs_alone
SELECT 1 FROM active WHERE key = ? AND alone
