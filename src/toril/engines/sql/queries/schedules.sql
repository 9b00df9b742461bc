-- schedules: recurring jobs. A run is a job whose key the schedule knows; from place 5 on a job has ended.

-- name: find
SELECT s.id, s.slot, s.count AS runs, s.paused, s.over, s.owner, s.timing, s.template,
    EXISTS (SELECT 1 FROM jobs j WHERE j.key = s.last AND j.place < 5) AS busy
FROM schedules s WHERE s.queue = ? AND s.id = ?

-- name: page
SELECT s.id, s.slot, s.count AS runs, s.paused, s.over, s.owner, s.timing, s.template,
    EXISTS (SELECT 1 FROM jobs j WHERE j.key = s.last AND j.place < 5) AS busy
FROM schedules s WHERE s.queue = ? AND s.id > ? ORDER BY s.id LIMIT ?

-- name: overdue
SELECT s.id, s.slot, s.count AS runs, s.paused, s.over, s.owner, s.timing, s.template, 0 AS busy
FROM schedules s LEFT JOIN jobs j ON j.key = s.run
WHERE s.queue = ? AND s.slot <= ? AND NOT s.paused AND NOT s.over AND (j.key IS NULL OR j.place > 4)
ORDER BY s.slot LIMIT ?

-- name: run
SELECT j.key, j.id AS chosen, j.logs, j.place, j.rank, (a.key IS NOT NULL OR r.job IS NOT NULL) AS running
FROM jobs j LEFT JOIN active a ON a.key = j.key LEFT JOIN rests r ON r.job = j.key
WHERE j.key = (SELECT run FROM schedules WHERE queue = ? AND id = ?)

-- name: owner
SELECT key FROM ids WHERE queue = ? AND id = ?

-- name: put
INSERT INTO schedules (queue, id, slot, run, count, owner, timing, template) VALUES (?, ?, ?, ?, 1, ?, ?, ?)
ON CONFLICT DO UPDATE SET slot = excluded.slot, run = excluded.run, over = 0, owner = excluded.owner,
    timing = excluded.timing, template = excluded.template

-- name: advance
UPDATE schedules SET slot = ?, run = ?, count = count + 1 WHERE queue = ? AND id = ?

-- name: started
UPDATE schedules SET last = run WHERE queue = ? AND id = ? AND slot = ?

-- name: over
UPDATE schedules SET over = 1 WHERE queue = ? AND id = ?

-- name: pause
UPDATE schedules SET paused = 1 WHERE queue = ? AND id = ?

-- name: resume
UPDATE schedules SET paused = 0, slot = ?, run = ? WHERE queue = ? AND id = ?

-- name: end
UPDATE schedules SET paused = 0, over = 1 WHERE queue = ? AND id = ?

-- name: remove
DELETE FROM schedules WHERE queue = ? AND id = ?

-- name: declared
SELECT id FROM schedules WHERE queue = ? AND owner = ?
