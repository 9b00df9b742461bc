-- claim: promote what is due, then take from the line into `active`.

-- name: due
SELECT l.key, l.rank, j.id, j.priority FROM line l JOIN jobs j ON j.key = l.key
WHERE l.queue = ? AND l.place = ? AND l.rank < ? ORDER BY l.rank LIMIT ?

-- name: next_due
SELECT rank FROM line WHERE queue = ? AND place = ? ORDER BY rank LIMIT 1

-- name: first
SELECT json_group_array(json_array(line_rank, key, id, name, priority, attempts, attempts_made, stalls, starts, fence,
    added_at, started_at, worker, logs, options, expires_at, delay, metadata, checkpoint, data, grp))
FROM (SELECT l.rank AS line_rank, j.* FROM line l JOIN jobs j ON j.key = l.key
    WHERE l.queue = ? AND l.place = ? ORDER BY l.rank LIMIT ?)

-- name: leave_up_to
DELETE FROM line WHERE queue = ? AND place = ? AND rank <= ?

-- name: hold
INSERT INTO active (key, queue, deadline, token, worker, started_at, fence, alone, max_stalls)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: held_again
SELECT j.key, j.id, j.name, j.data, j.starts + 1, a.fence, j.attempts, j.attempts_made, j.stalls, j.added_at, j.delay, j.priority,
    j.options, j.metadata, j.checkpoint, a.alone
FROM json_each(?) v JOIN active a ON a.key = v.value AND a.token = ? AND a.deadline > ? JOIN jobs j ON j.key = a.key ORDER BY v.key

-- name: trim_starts
DELETE FROM starts WHERE queue = ? AND time <= ?

-- name: starts
SELECT coalesce(sum(count), 0), min(time) FROM starts WHERE queue = ?

-- name: start
INSERT INTO starts (queue, time, count) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count
