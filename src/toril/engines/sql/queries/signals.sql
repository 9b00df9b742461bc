-- signals: what is sent to jobs.

-- name: addressee
SELECT j.key, j.id AS chosen, j.place, j.rank, j.priority, a.key IS NOT NULL AS running, r.text AS rest
FROM jobs j LEFT JOIN active a ON a.key = j.key LEFT JOIN rests r ON r.job = j.key WHERE j.key = ?

-- name: has_dead_letter
SELECT 1 FROM letters WHERE id = ?

-- name: awaits
SELECT job FROM awaited WHERE queue = ? AND name = ? AND word = ?

-- name: knows
SELECT 1 FROM signals WHERE job = ? AND id = ?

-- name: unread
SELECT count(*), coalesce(sum(length(CAST(text AS BLOB))), 0) FROM signals WHERE job = ? AND text IS NOT NULL

-- name: add
INSERT INTO signals (job, number, name, word, id, at, text) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: note
INSERT OR IGNORE INTO recorded (job) VALUES (?)

-- name: inbox
SELECT number, name, word, id, at, text FROM signals WHERE job = ? AND text IS NOT NULL ORDER BY number

-- name: ids
SELECT id FROM signals WHERE job = ? AND text IS NULL ORDER BY number

-- name: all_kept
SELECT number, name, word, id, at, text, till FROM kept_signals WHERE queue = ? AND till > ? ORDER BY number

-- name: take
DELETE FROM signals WHERE job = ? AND number = ?

-- name: trim_ids
DELETE FROM signals WHERE job = ? AND text IS NULL AND number <= (
    SELECT number FROM signals WHERE job = ? AND text IS NULL ORDER BY number DESC LIMIT 1 OFFSET ?)

-- name: was_sent
SELECT 1 FROM sent_ids WHERE queue = ? AND name = ? AND word = ? AND id = ? AND till > ?

-- name: last_sent
SELECT max(number) FROM sent_ids WHERE queue = ?

-- name: remember_sent
INSERT INTO sent_ids (queue, name, word, id, number, till) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (queue, name, word, id) DO UPDATE SET number = excluded.number, till = excluded.till

-- name: trim_sent
DELETE FROM sent_ids WHERE queue = ? AND number <= ?

-- name: overdue_sent
DELETE FROM sent_ids WHERE (queue, name, word, id) IN (
    SELECT queue, name, word, id FROM sent_ids WHERE queue = ? AND till <= ? LIMIT ?)

-- name: all_sent
SELECT name, word, id, till FROM sent_ids WHERE queue = ? AND till > ? ORDER BY number

-- name: forget_sent
DELETE FROM sent_ids WHERE queue = ?

-- name: kept_size
SELECT count(*), coalesce(sum(size), 0) FROM kept_signals WHERE queue = ? AND till > ?

-- name: keep
INSERT INTO kept_signals (queue, name, word, number, id, at, till, size, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: kept
SELECT k.number, k.name, k.word, k.id, k.at, k.text FROM json_each(?) v CROSS JOIN kept_signals k
WHERE k.queue = ? AND k.name = json_extract(v.value, '$[0]') AND k.word = json_extract(v.value, '$[1]') AND k.till > ?
ORDER BY k.number

-- name: take_kept
DELETE FROM kept_signals WHERE queue = ? AND name = ? AND word = ? AND number = ?

-- name: overdue
DELETE FROM kept_signals WHERE (queue, name, word, number) IN (
    SELECT queue, name, word, number FROM kept_signals WHERE queue = ? AND till <= ? LIMIT ?)

-- name: forget_kept
DELETE FROM kept_signals WHERE queue = ?

-- name: forget_awaited
DELETE FROM awaited WHERE queue = ?
