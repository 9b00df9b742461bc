-- claim: promote what is due, then take from the line into `active`.

-- name: due
SELECT l.key, l.rank, j.id, j.priority FROM line l JOIN jobs j ON j.key = l.key
WHERE l.queue = ? AND l.place = ? AND l.rank < ? ORDER BY l.rank LIMIT ?

-- name: next_due
SELECT rank FROM line WHERE queue = ? AND place = ? ORDER BY rank LIMIT 1

-- name: first
SELECT j.key, j.id AS chosen, j.name, j.priority, j.attempts AS max_attempts, j.attempts_made, j.stalls, j.starts, j.fence,
    j.added_at, j.started_at, j.worker, j.logs, j.options AS options_text, l.rank, j.expires_at, j.delay, j.metadata,
    j.checkpoint, j.data, j.grp AS group_name
FROM line l JOIN jobs j ON j.key = l.key WHERE l.queue = ? AND l.place = ? AND l.rank > ? ORDER BY l.rank LIMIT ?

-- name: leave_up_to
DELETE FROM line WHERE queue = ? AND place = ? AND rank <= ?

-- name: hold
INSERT INTO active (key, queue, deadline, token, worker, started_at, fence, alone, max_stalls)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: held_again
SELECT j.key, j.id AS chosen, j.name, j.priority, j.attempts AS max_attempts, j.attempts_made, j.stalls, j.starts, j.fence,
    j.added_at, j.started_at, j.worker, j.logs, j.options AS options_text, j.delay, j.metadata, j.checkpoint, j.data,
    a.fence AS held_fence, a.alone
FROM json_each(?) v JOIN active a ON a.key = v.value AND a.token = ? AND a.deadline > ? JOIN jobs j ON j.key = a.key
ORDER BY v.key

-- name: trim_starts
DELETE FROM starts WHERE queue = ? AND time <= ?

-- name: starts
SELECT coalesce(sum(count), 0), min(time) FROM starts WHERE queue = ?

-- name: start
INSERT INTO starts (queue, time, count) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count
