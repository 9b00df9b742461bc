-- hot_path: adds of jobs that simply go to the end of the line.

-- name: standing
SELECT q.key, q.last_number, q.moves, q.events, q.max_waiting, c.seq
FROM queues q LEFT JOIN calls c ON c.sender = ? WHERE q.name = ?

-- name: job
INSERT INTO jobs (key, name, place, rank, attempts, priority, delay, added_at, expires_at, options, metadata, data)
VALUES (?, ?, ?, ?, ?, 0, 0, ?, ?, ?, ?, ?)

-- name: line
INSERT INTO line (queue, place, rank, key, moved) VALUES (?, ?, ?, ?, ?)

-- name: events
INSERT INTO events (key, time, kind, size, jobs, details) VALUES (?, ?, ?, ?, ?, ?), (?, ?, ?, ?, ?, NULL)

-- name: count
UPDATE queues SET last_number = ?, moves = ?, events = ?, waiting = waiting + ?, arrivals = arrivals + 1 WHERE key = ?
