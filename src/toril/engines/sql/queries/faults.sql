-- faults: what does not fit together, a bounded part at a time. From place 5 on a job has ended.

-- name: jobs
SELECT j.key, j.id, j.place, a.key IS NOT NULL, CASE WHEN j.place <= 4 THEN j.options END,
    (SELECT count(*) FROM line l WHERE l.queue = ? AND l.place = j.place AND l.rank = j.rank AND l.key = j.key)
FROM jobs j LEFT JOIN active a ON a.key = j.key WHERE j.key > ? AND j.key < ? ORDER BY j.key LIMIT ?

-- name: line
SELECT l.place, l.rank, l.key, j.key IS NOT NULL, j.id, a.key IS NOT NULL OR j.place <> l.place OR j.rank <> l.rank
FROM line l LEFT JOIN jobs j ON j.key = l.key LEFT JOIN active a ON a.key = l.key
WHERE l.queue = ? AND (l.place, l.rank, l.key) > (?, ?, ?) ORDER BY l.place, l.rank, l.key LIMIT ?

-- name: active
SELECT a.key, j.key IS NOT NULL, j.id, a.deadline
FROM active a LEFT JOIN jobs j ON j.key = a.key WHERE a.queue = ? AND a.key > ? ORDER BY a.key LIMIT ?

-- name: ids
SELECT i.id, j.key IS NULL FROM ids i LEFT JOIN jobs j ON j.key = i.key
WHERE i.queue = ? AND i.id > ? ORDER BY i.id LIMIT ?

-- name: dedups
SELECT d.id, d.till IS NULL AND (j.key IS NULL OR j.place > 4) FROM dedups d LEFT JOIN jobs j ON j.key = d.key
WHERE d.queue = ? AND d.id > ? ORDER BY d.id LIMIT ?

-- name: open
SELECT queue, id FROM children WHERE parent = ? AND standing = 0 LIMIT ?

-- name: close
DELETE FROM children WHERE parent = ? AND standing = 0

-- name: places
SELECT place, count(*) FROM line WHERE queue = ? GROUP BY place

-- name: running
SELECT count(*) FROM active WHERE queue = ?

-- name: workers
SELECT id FROM workers WHERE till < ? ORDER BY id LIMIT ?

-- name: worker
SELECT 1 FROM workers WHERE id = ? AND till < ?

-- name: delete_worker
DELETE FROM workers WHERE id = ?

-- name: entry
SELECT 1 FROM line WHERE queue = ? AND place = ? AND rank = ? AND key = ?

-- name: leave
DELETE FROM line WHERE queue = ? AND place = ? AND rank = ? AND key = ?

-- name: leave_active
DELETE FROM active WHERE key = ?

-- name: enter
INSERT OR IGNORE INTO line (queue, place, rank, key, moved) VALUES (?, ?, ?, ?, ?)

-- name: job
SELECT key, priority, place, rank FROM jobs WHERE key = ?

-- name: stand
UPDATE jobs SET place = ?, rank = ? WHERE key = ?

-- name: held
SELECT deadline FROM active WHERE key = ?

-- name: taken
SELECT key FROM ids WHERE queue = ? AND id = ?

-- name: free_id
DELETE FROM ids WHERE queue = ? AND id = ? AND key NOT IN (SELECT key FROM jobs)

-- name: waits
SELECT 1 FROM jobs j JOIN children c ON c.parent = j.key AND c.standing = 0
WHERE j.key = ? AND json_extract(j.options, '$.deferred') IS NULL LIMIT 1

-- name: dedup
SELECT key FROM dedups WHERE queue = ? AND id = ? AND till IS NULL

-- name: rests
SELECT r.until, r.job, j.id, j.place, j.rank, j.key IS NULL OR a.key IS NOT NULL OR j.place NOT IN (3, 4), r.children
FROM rests r LEFT JOIN jobs j ON j.key = r.job LEFT JOIN active a ON a.key = r.job
WHERE r.queue = ? AND (r.until, r.job) > (?, ?) ORDER BY r.until, r.job LIMIT ?

-- name: count_rests
SELECT j.place, count(*) FROM rests r JOIN jobs j ON j.key = r.job WHERE r.queue = ? GROUP BY j.place

-- name: is_stale_rest
SELECT j.key IS NULL OR a.key IS NOT NULL OR j.place NOT IN (3, 4)
FROM rests r LEFT JOIN jobs j ON j.key = r.job LEFT JOIN active a ON a.key = r.job WHERE r.job = ?

-- name: forget_rest
DELETE FROM rests WHERE job = ?

-- name: waits_for_keys
SELECT w.name, w.word, j.key IS NULL OR (j.place > 4 AND a.key IS NULL) FROM awaited w
LEFT JOIN jobs j ON j.key = w.job LEFT JOIN active a ON a.key = w.job
WHERE w.queue = ? AND (w.name, w.word) > (?, ?) ORDER BY w.name, w.word LIMIT ?

-- name: is_orphan_wait
SELECT j.key IS NULL OR (j.place > 4 AND a.key IS NULL) FROM awaited w
LEFT JOIN jobs j ON j.key = w.job LEFT JOIN active a ON a.key = w.job WHERE w.queue = ? AND w.name = ? AND w.word = ?

-- name: forget_wait
DELETE FROM awaited WHERE queue = ? AND name = ? AND word = ?
