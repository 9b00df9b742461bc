-- maintenance: prune, heartbeat, lead, resign, signal, once.

-- name: overdue_results
DELETE FROM results
WHERE queue = ? AND id IN (SELECT id FROM results WHERE queue = ? AND till <= ? LIMIT ?)

-- name: old_minutes
DELETE FROM minutes WHERE queue = ? AND minute < ?

-- name: old_calls
DELETE FROM calls WHERE sender IN (SELECT sender FROM calls WHERE time <= ? AND sender NOT GLOB ? LIMIT ?)

-- name: old_worker_calls
DELETE FROM pokes WHERE worker IN (SELECT worker FROM pokes WHERE time <= ? LIMIT ?)

-- name: dead_workers
DELETE FROM workers WHERE till <= ?

-- name: old_onces
DELETE FROM onces WHERE key IN (SELECT key FROM onces WHERE till <= ? LIMIT ?)

-- name: aged
SELECT g.till, g.key, j.id AS chosen, j.logs, j.place, j.rank, j.finished_at, j.options AS options_text
FROM ageing g LEFT JOIN jobs j ON j.key = g.key
WHERE g.queue = ? AND g.till <= ? ORDER BY g.till LIMIT ?

-- name: forget_aged
DELETE FROM ageing WHERE queue = ? AND till = ? AND key = ?

-- name: heartbeat
INSERT INTO workers (id, till, seen_at, beat) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET till = excluded.till, seen_at = excluded.seen_at, beat = excluded.beat,
    orders = iif(beat ->> 'started_at' = excluded.beat ->> 'started_at', orders, '')

-- name: undeclare
DELETE FROM declared WHERE worker = ?

-- name: declare
INSERT INTO declared (queue, worker, at, text) VALUES (?, ?, ?, ?)

-- name: stopped
DELETE FROM workers WHERE id = ? AND beat ->> 'started_at' = ?

-- name: orders
SELECT orders FROM workers WHERE id = ?

-- name: living_orders
SELECT orders FROM workers WHERE id = ? AND till > ?

-- name: set_orders
UPDATE workers SET orders = ? WHERE id = ?

-- name: lead
INSERT INTO leaders (role, owner, till) VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET owner = excluded.owner, till = excluded.till
WHERE owner = excluded.owner OR till <= ?

-- name: resign
DELETE FROM leaders WHERE role = ? AND owner = ?

-- name: once
INSERT INTO onces (key, owner, till) VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET owner = excluded.owner, till = excluded.till WHERE till <= ?

-- name: first
SELECT owner FROM onces WHERE key = ?

-- name: old_dedups
DELETE FROM dedups WHERE queue = ? AND till <= ?
