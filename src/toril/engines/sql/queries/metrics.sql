-- metrics: what steps count, and what a snapshot reads.

-- name: next
SELECT l.rank, j.added_at, j.delay, j.starts, j.started_at, j.options AS options_text
FROM line l JOIN jobs j ON j.key = l.key
WHERE l.queue = ? AND l.place = ? AND l.rank >= ? ORDER BY l.rank LIMIT ?

-- name: slice
SELECT counted FROM slices WHERE queue = ? AND step = ? AND slice = ?

-- name: slices
SELECT slice, counted FROM slices WHERE queue = ? AND step = ? AND slice > ?

-- name: total
SELECT counted FROM slices WHERE queue = ? AND step = 0 AND slice = 0

-- name: put_slice
INSERT INTO slices (queue, step, slice, counted) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET counted = excluded.counted

-- name: old_slices
DELETE FROM slices WHERE queue = ? AND step = ? AND slice <= ?

-- name: leader
SELECT owner FROM leaders WHERE role = ? AND till > ?

-- name: minutes
SELECT minute, completed, failed FROM minutes WHERE queue = ? AND minute > ? AND minute <= ?
