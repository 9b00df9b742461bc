-- dead_letters: jobs that failed for good.

-- name: newest
SELECT id, queue, job, name, data, cause, failure, failed_at, attempts AS max_attempts, attempts_made, stalls,
    stall_cause, worker, added_at, started_at, priority, options AS options_text, metadata, checkpoint, progress,
    grp AS group_name
FROM letters WHERE (failed_at, id) < (?, ?) ORDER BY failed_at DESC, id DESC LIMIT ?

-- name: oldest
SELECT id, queue, job, name, data, cause, failure, failed_at, attempts AS max_attempts, attempts_made, stalls,
    stall_cause, worker, added_at, started_at, priority, options AS options_text, metadata, checkpoint, progress,
    grp AS group_name
FROM letters WHERE (failed_at, id) > (?, ?) ORDER BY failed_at, id LIMIT ?

-- name: of_ids
SELECT l.id, l.queue, l.job, l.name, l.data, l.cause, l.failure, l.failed_at, l.attempts AS max_attempts,
    l.attempts_made, l.stalls, l.stall_cause, l.worker, l.added_at, l.started_at, l.priority,
    l.options AS options_text, l.metadata, l.checkpoint, l.progress, l.grp AS group_name
FROM json_each(?) v CROSS JOIN letters l ON l.id = v.value

-- name: count
SELECT count(*) FROM letters

-- name: details
SELECT queue, job, options AS options_text, kin AS children_key, log AS log_key, recorded AS steps_key
FROM letters WHERE id = ?

-- name: delete
DELETE FROM letters WHERE id = ?

-- name: taken
SELECT key FROM jobs WHERE key = ?

-- name: id_taken
SELECT key FROM ids WHERE queue = ? AND id = ?

-- name: insert_job
INSERT INTO jobs (key, id, name, place, rank, attempts, priority, delay, added_at, options, metadata, checkpoint, data,
    grp, ord)
VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_id
INSERT INTO ids (queue, id, key) VALUES (?, ?, ?)

-- name: forget_result
DELETE FROM results WHERE queue = ? AND id = ?

-- name: keeping
SELECT value FROM facts WHERE name = 'letters'

-- name: set_keeping
INSERT INTO facts (name, value) VALUES ('letters', ?) ON CONFLICT DO UPDATE SET value = excluded.value

-- name: errors
SELECT errors, failure, attempts_made, failed_at FROM letters WHERE id = ?

-- name: forget_children
DELETE FROM children WHERE parent = ?

-- name: forget_log
DELETE FROM logs WHERE key = ?

-- name: not_succeeded
SELECT queue, id FROM children WHERE parent = ? AND standing IN (0, 3)

-- name: parked
UPDATE jobs SET options = json_set(coalesce(options, '{}'), '$.parked', ?) WHERE key = ?

-- name: move_children
UPDATE children SET parent = ? WHERE parent = ?

-- name: move_log
UPDATE logs SET key = ? WHERE key = ?

-- name: count_log
UPDATE jobs SET logs = (SELECT max(number) FROM logs WHERE logs.key = jobs.key) WHERE key = ?

-- name: children_of_overdue
DELETE FROM children WHERE parent IN (SELECT kin FROM letters WHERE failed_at < ? ORDER BY failed_at LIMIT ?)

-- name: children_of_surplus
DELETE FROM children WHERE parent IN (SELECT kin FROM letters ORDER BY failed_at, id LIMIT ?)

-- name: log_of_overdue
DELETE FROM logs WHERE key IN (SELECT log FROM letters WHERE failed_at < ? ORDER BY failed_at LIMIT ?)

-- name: log_of_surplus
DELETE FROM logs WHERE key IN (SELECT log FROM letters ORDER BY failed_at, id LIMIT ?)

-- name: overdue
DELETE FROM letters WHERE id IN (SELECT id FROM letters WHERE failed_at < ? ORDER BY failed_at LIMIT ?)

-- name: surplus
DELETE FROM letters WHERE id IN (SELECT id FROM letters ORDER BY failed_at, id LIMIT ?)
