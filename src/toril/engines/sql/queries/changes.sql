-- What several operations write: entries into `line`, removals, events, run records, minutes. Statements for many
-- rows have one group of VALUES, which is repeated for as many rows as there are.

-- name: forget_dead_letter_logs
DELETE FROM logs WHERE key IN (SELECT log FROM letters WHERE id IN (VALUES (?)))

-- name: forget_dead_letter_children
DELETE FROM children WHERE parent IN (SELECT kin FROM letters WHERE id IN (VALUES (?)))

-- name: forget_dead_letter
DELETE FROM letters WHERE id IN (VALUES (?))

-- name: dead_letter
INSERT OR REPLACE INTO letters (id, queue, job, cause, failure, failed_at, attempts_made, stalls, started_at, worker,
    name, attempts, priority, added_at, options, metadata, checkpoint, progress, errors, stall_cause, data, grp, log, kin,
    recorded)
SELECT v.column2, v.column3, v.column4, v.column5, v.column6, v.column7, v.column8, v.column9, v.column10, v.column11,
    j.name, j.attempts, j.priority, j.added_at, j.options, j.metadata, j.checkpoint, j.progress, j.errors, j.stall_cause,
    j.data, j.grp, iif(j.logs, -j.key, NULL), iif(json_extract(j.options, '$.parked') IS NULL, NULL, -j.key),
    (SELECT -r.job FROM recorded r WHERE r.job = j.key)
FROM (VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)) v JOIN jobs j ON j.key = v.column1

-- name: move_logs
UPDATE OR REPLACE logs SET key = -key WHERE key IN (VALUES (?))

-- name: move_children
UPDATE OR REPLACE children SET parent = -parent WHERE parent IN (VALUES (?))

-- name: move_recorded
UPDATE recorded SET job = -job WHERE job IN (VALUES (?))

-- name: move_steps
UPDATE steps SET job = -job WHERE job IN (VALUES (?))

-- name: move_signals
UPDATE signals SET job = -job WHERE job IN (VALUES (?))

-- name: error
UPDATE jobs SET errors = CASE
    WHEN errors IS NULL THEN v.column2
    WHEN length(errors) - length(replace(errors, char(10), '')) < v.column3 THEN errors || char(10) || v.column2
    ELSE substr(errors, instr(errors, char(10)) + 1) || char(10) || v.column2 END
FROM (VALUES (?, ?, ?)) v WHERE key = v.column1

-- name: enter
INSERT INTO line (queue, place, rank, key, moved) VALUES (?, ?, ?, ?, ?)

-- name: leave
DELETE FROM line WHERE (queue, place, rank, key) IN (SELECT * FROM (VALUES (?, ?, ?, ?)))

-- name: place
UPDATE jobs SET place = v.column2, rank = v.column3 FROM (VALUES (?, ?, ?)) v WHERE key = v.column1

-- name: leave_active
DELETE FROM active WHERE key IN (VALUES (?))

-- name: delete_job
DELETE FROM jobs WHERE key IN (VALUES (?))

-- name: delete_id
DELETE FROM ids WHERE queue = ? AND id IN (VALUES (?))

-- name: delete_logs
DELETE FROM logs WHERE key IN (VALUES (?))

-- name: delete_recorded
DELETE FROM recorded WHERE job IN (VALUES (?))

-- name: delete_steps
DELETE FROM steps WHERE job IN (VALUES (?))

-- name: delete_signals
DELETE FROM signals WHERE job IN (VALUES (?))

-- name: stop_awaiting
DELETE FROM awaited WHERE job IN (VALUES (?))

-- name: drop_unread
DELETE FROM signals WHERE job IN (VALUES (?)) AND text IS NOT NULL

-- name: wake
DELETE FROM rests WHERE job IN (VALUES (?))

-- name: wake_parent
DELETE FROM rests WHERE job IN (VALUES (?))

-- name: rest
INSERT INTO rests (job, queue, until, children, text) VALUES (?, ?, ?, ?, ?)

-- name: never_expires
UPDATE jobs SET expires_at = NULL WHERE key IN (VALUES (?)) AND expires_at IS NOT NULL

-- name: orphan
DELETE FROM children WHERE parent IN (VALUES (?))

-- name: disown
DELETE FROM dedups WHERE key IN (VALUES (?))

-- name: event
INSERT INTO events (key, time, kind, size, jobs, details) VALUES (?, ?, ?, ?, ?, ?)

-- name: trim_events
DELETE FROM events WHERE key > ? AND key <= ?

-- name: run
INSERT INTO runs (key, id, name, cause, added_at, started_at, finished_at, attempts_made, stalls, worker, text, whole,
    subject, parent)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: trim_runs
DELETE FROM runs WHERE key > ? AND key <= ?

-- name: minute
INSERT INTO minutes (queue, minute, completed, failed) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET completed = completed + excluded.completed, failed = failed + excluded.failed

-- name: result
INSERT INTO results (queue, id, till, cause, text) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET till = excluded.till, cause = excluded.cause, text = excluded.text

-- name: keep
UPDATE jobs SET place = v.column2, rank = v.column3, attempts_made = v.column4, stalls = v.column5, starts = v.column6,
    fence = v.column7, started_at = v.column8, finished_at = v.column9, worker = v.column10, result = v.column11,
    failure = coalesce(v.column12, failure)
FROM (VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)) v WHERE key = v.column1

-- name: stand
UPDATE jobs SET attempts_made = v.column2, stalls = v.column3, starts = v.column4, fence = v.column5,
    started_at = v.column6, worker = v.column7, delay = coalesce(v.column8, delay),
    failure = coalesce(v.column9, failure), stall_cause = coalesce(v.column10, stall_cause)
FROM (VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)) v WHERE key = v.column1

-- name: last_due
SELECT max(rank) FROM line WHERE queue = ? AND place = ? AND rank >= ? AND rank < ?

-- name: oldest_kept
SELECT j.key, j.id, j.logs, l.rank, j.finished_at, j.options FROM line l JOIN jobs j ON j.key = l.key
WHERE l.queue = ? AND l.place = ? AND l.rank <= ? ORDER BY l.rank LIMIT ?

-- name: age
INSERT OR IGNORE INTO ageing (queue, till, key) VALUES (?, ?, ?)

-- name: forget_age
DELETE FROM ageing WHERE (queue, till, key) IN (SELECT * FROM (VALUES (?, ?, ?)))
