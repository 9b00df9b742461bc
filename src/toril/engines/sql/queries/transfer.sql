-- transfer: what leaves for another store, and what comes from one.

-- name: fact
SELECT value FROM facts WHERE name = ?

-- name: set_fact
INSERT INTO facts (name, value) VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value

-- name: forget_fact
DELETE FROM facts WHERE name = ?

-- name: keep
INSERT INTO van (position, parcel) VALUES (?, ?)

-- name: kept
SELECT parcel FROM van ORDER BY position

-- name: empty
DELETE FROM van

-- name: departure
SELECT target, paused FROM departures WHERE queue = ?

-- name: depart
INSERT INTO departures (queue, target, paused) VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET target = excluded.target, paused = excluded.paused

-- name: return
DELETE FROM departures WHERE queue = ?

-- name: has_departed
SELECT 1 FROM departed WHERE queue = ? AND schedule = ?

-- name: has_left
INSERT OR IGNORE INTO departed (queue, schedule) VALUES (?, ?)

-- name: is_back
DELETE FROM departed WHERE queue = ?

-- name: line
SELECT key FROM line WHERE queue = ? AND place = ? ORDER BY rank, key

-- name: children
SELECT standing, queue, id, text, number, name FROM children WHERE parent = ?

-- name: is_open
SELECT 1 FROM children WHERE parent = ? AND standing = 0 AND queue = ? AND id = ?

-- name: lines
SELECT line FROM logs WHERE key = ? ORDER BY number

-- name: keys
SELECT id, till, next FROM dedups WHERE key = ?

-- name: runs
SELECT run, last FROM schedules WHERE queue = ?

-- name: schedules
SELECT id, slot, count AS runs, paused, over, owner, timing, template, 0 AS busy, run, last
FROM schedules WHERE queue = ? ORDER BY id

-- name: dead_letter
SELECT id, queue, job, name, data, cause, failure, failed_at, attempts AS max_attempts, attempts_made, stalls,
    stall_cause, worker, added_at, started_at, priority, options AS options_text, metadata, checkpoint, progress,
    grp AS group_name, errors, log AS log_key, kin AS children_key,
    recorded AS steps_key
FROM letters WHERE id = ?

-- name: dead_letters
SELECT id FROM letters ORDER BY failed_at, id

-- name: groups
SELECT name, limits, paused FROM groups WHERE queue = ?

-- name: starts
SELECT time, count FROM starts WHERE queue = ?

-- name: group_starts
SELECT name, time, count FROM group_starts WHERE queue = ?

-- name: minutes
SELECT minute, completed, failed FROM minutes WHERE queue = ? ORDER BY minute

-- name: run_records
SELECT key, id, name, cause, added_at, started_at, finished_at, attempts_made, stalls, worker, text, whole, subject,
    parent
FROM runs WHERE key > ? AND key < ? ORDER BY key

-- name: slices
SELECT step, slice, counted FROM slices WHERE queue = ?

-- name: results
SELECT id, till, cause, text FROM results WHERE queue = ?

-- name: ownerless
SELECT d.id, d.owner, d.till FROM dedups d LEFT JOIN jobs j ON j.key = d.key
WHERE d.queue = ? AND d.till IS NOT NULL AND j.key IS NULL

-- name: forget_ownerless
DELETE FROM dedups WHERE queue = ? AND till IS NOT NULL AND key NOT IN (SELECT key FROM jobs)

-- name: insert_job
INSERT INTO jobs (key, id, name, data, place, rank, attempts, attempts_made, stalls, starts, fence, priority, delay,
    expires_at, options, metadata, checkpoint, progress, result, failure, stall_cause, worker, added_at, started_at,
    finished_at, grp, ord, logs, errors)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_id
INSERT INTO ids (queue, id, key) VALUES (?, ?, ?)

-- name: is_taken
SELECT 1 FROM jobs WHERE key = ?

-- name: owner
SELECT key FROM ids WHERE queue = ? AND id = ?

-- name: insert_line
INSERT INTO logs (key, number, line) VALUES (?, ?, ?)

-- name: insert_child
INSERT OR REPLACE INTO children (parent, standing, queue, id, text, number, name) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: hold_key
INSERT INTO dedups (queue, id, owner, key, till, next) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET owner = excluded.owner, key = excluded.key, till = excluded.till, next = excluded.next

-- name: put_schedule
INSERT OR REPLACE INTO schedules (queue, id, slot, run, count, last, paused, over, owner, timing, template)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: timing
SELECT timing FROM schedules WHERE queue = ? AND id = ?

-- name: insert_dead_letter
INSERT OR IGNORE INTO letters (id, queue, job, name, data, cause, failure, failed_at, attempts, attempts_made, stalls,
    stall_cause, worker, added_at, started_at, priority, options, metadata, checkpoint, progress, grp, errors, log, kin,
    recorded)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: set_group
INSERT INTO groups (queue, name, limits, paused) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET limits = excluded.limits, paused = excluded.paused

-- name: put_circuit
INSERT OR IGNORE INTO circuits (key, circuit) VALUES (?, ?)

-- name: all_circuits
SELECT key, circuit FROM circuits ORDER BY key

-- name: forget_circuits
DELETE FROM circuits
