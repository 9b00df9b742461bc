-- flows: parents and children.

-- name: member
SELECT j.key, j.id AS chosen, j.place, j.rank, j.priority, j.delay, j.options AS options_text, j.logs, j.result,
    a.key IS NOT NULL AS running, r.children AS rests_for_children
FROM jobs j LEFT JOIN active a ON a.key = j.key LEFT JOIN rests r ON r.job = j.key WHERE j.key = ?

-- name: of_keys
SELECT j.key, j.id, j.options FROM json_each(?) v JOIN jobs j ON j.key = v.value WHERE j.options IS NOT NULL

-- name: owners
SELECT i.id, i.key FROM json_each(?) v CROSS JOIN ids i ON i.queue = ? AND i.id = v.value

-- name: open
INSERT OR IGNORE INTO children (parent, queue, id) VALUES (?, ?, ?)

-- name: add_child
INSERT OR REPLACE INTO children (parent, standing, queue, id, text, number, name) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: last_number
SELECT coalesce(max(number), 0) FROM children WHERE parent = ?

-- name: names
SELECT queue, id, name FROM children WHERE parent = ? AND name IS NOT NULL ORDER BY number

-- name: close
DELETE FROM children WHERE parent = ? AND standing = 0 AND queue = ? AND id = ?

-- name: reopen
UPDATE OR REPLACE children SET standing = 0, text = NULL
WHERE parent = ? AND standing IN (1, 2, 3) AND queue = ? AND id = ?

-- name: end
UPDATE OR REPLACE children SET standing = ?, text = ? WHERE parent = ? AND standing = 0 AND queue = ? AND id = ?

-- name: is_known
SELECT standing FROM children WHERE parent = ? AND standing IN (0, 1, 2, 3) AND queue = ? AND id = ?

-- name: has_open
SELECT 1 FROM children WHERE parent = ? AND standing = 0 LIMIT 1

-- name: dead_letter_children
SELECT kin FROM letters WHERE id = ?

-- name: fail_parent
UPDATE jobs SET delay = 0, options = json_set(coalesce(options, '{}'), '$.deferred', ?) WHERE key = ?

-- name: forgive
UPDATE jobs SET options = json_remove(options, '$.deferred') WHERE key = ? AND options IS NOT NULL

-- name: parked
UPDATE jobs SET options = json_set(coalesce(options, '{}'), '$.parked', ?) WHERE key = ?

-- name: adopt
UPDATE jobs SET options = json_set(coalesce(options, '{}'), '$.parent', json(?)) WHERE key = ?

-- name: build
INSERT INTO buildings (parent, queue, till) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET till = excluded.till

-- name: built
DELETE FROM buildings WHERE parent = ?

-- name: abandoned
SELECT parent FROM buildings WHERE queue = ? AND till <= ? ORDER BY till LIMIT 10

-- name: waiting
SELECT key FROM line WHERE queue = ? AND place = ? ORDER BY rank LIMIT ? OFFSET ?

-- name: resting
SELECT r.job FROM rests r JOIN jobs j ON j.key = r.job
WHERE r.queue = ? AND r.children AND j.place = ? ORDER BY r.job LIMIT ? OFFSET ?

-- name: first_open
SELECT queue, id FROM children WHERE parent = ? AND standing = 0 AND id != '' LIMIT ?

-- name: has_dead_letter
SELECT 1 FROM letters WHERE id = ?

-- name: count
SELECT standing, count(*) FROM children WHERE parent = ? AND id != '' GROUP BY standing

-- name: page
SELECT standing, queue, id, text FROM children
WHERE parent = ? AND id != '' AND (standing, queue, id) > (?, ?, ?) ORDER BY standing, queue, id LIMIT ?

-- name: holds
SELECT 1 FROM active WHERE key = ? AND token = ? AND deadline > ?
