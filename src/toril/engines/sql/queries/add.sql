-- add: store new jobs. A chosen id that is taken is answered with its owner.

-- name: owners
SELECT i.id, i.key FROM json_each(?) v CROSS JOIN ids i ON i.queue = ? AND i.id = v.value

-- name: insert_id
INSERT INTO ids (queue, id, key) VALUES (?, ?, ?)

-- name: forget_results
DELETE FROM results WHERE queue = ? AND id IN (VALUES (?))

-- name: insert_job
INSERT INTO jobs (key, id, name, place, rank, attempts, priority, delay, added_at, expires_at, options, metadata, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_grouped
INSERT INTO jobs (key, id, name, place, rank, attempts, priority, delay, added_at, expires_at, options, metadata, data, grp, ord)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: place_of
SELECT j.place, a.key IS NOT NULL FROM jobs j LEFT JOIN active a ON a.key = j.key WHERE j.key = ?
