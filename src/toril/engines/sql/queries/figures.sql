-- Figures: what `Measures` reads, and what the steps that settle jobs record.

-- name: next
SELECT l.rank, j.added_at, j.delay, j.starts, j.started_at, j.options FROM line l JOIN jobs j ON j.key = l.key
WHERE l.queue = ? AND l.place = ? AND l.rank >= ? ORDER BY l.rank LIMIT ?

-- name: slice
SELECT counted FROM slices WHERE queue = ? AND step = ? AND slice = ?

-- name: slices
SELECT slice, counted FROM slices WHERE queue = ? AND step = ? AND slice > ?

-- name: put_slice
INSERT INTO slices (queue, step, slice, counted) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET counted = excluded.counted

-- name: old_slices
DELETE FROM slices WHERE queue = ? AND step = ? AND slice <= ?

-- name: leader
SELECT owner FROM leaders WHERE role = ? AND till > ?
