-- steps: what jobs record of their handlers.

-- name: of_job
SELECT r.seq, r.count, r.bytes, r.reruns, r.epoch FROM recorded r WHERE r.job = ?

-- name: held
SELECT j.key, j.attempts_made FROM active a JOIN jobs j ON j.key = a.key
WHERE a.key = ? AND a.token = ? AND a.deadline > ? AND coalesce(j.id, ?) = ?

-- name: row
SELECT row FROM steps WHERE job = ? AND name = ?

-- name: put
INSERT INTO steps (job, name, seq, row) VALUES (?, ?, ?, ?)
ON CONFLICT (job, name) DO UPDATE SET seq = excluded.seq, row = excluded.row

-- name: count
INSERT INTO recorded (job, seq, count, bytes, reruns, epoch) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET seq = excluded.seq, count = excluded.count, bytes = excluded.bytes,
    reruns = excluded.reruns, epoch = excluded.epoch

-- name: claimed
SELECT r.job, r.count, r.bytes, r.reruns, r.epoch FROM json_each(?) v CROSS JOIN recorded r ON r.job = v.value

-- name: rows_of
SELECT s.job, s.name, s.row FROM json_each(?) v CROSS JOIN steps s ON s.job = v.value

-- name: page
SELECT name, row, seq FROM steps WHERE job = ? AND seq > ? ORDER BY seq LIMIT ?

-- name: seq
SELECT seq FROM steps WHERE job = ? AND name = ?

-- name: size
SELECT count(*), coalesce(sum(length(CAST(name AS BLOB)) + length(CAST(row AS BLOB))), 0) FROM steps
WHERE job = ? AND seq >= ?

-- name: all_rows
SELECT name, row FROM steps WHERE job = ? ORDER BY seq

-- name: drop
DELETE FROM steps WHERE job = ? AND seq >= ?

-- name: letter
SELECT recorded FROM letters WHERE id = ?

-- name: move_recorded
UPDATE recorded SET job = ?, reruns = reruns + 1 WHERE job = ?

-- name: move_steps
UPDATE steps SET job = ? WHERE job = ?

-- name: move_signals
UPDATE signals SET job = ? WHERE job = ?
