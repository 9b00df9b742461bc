-- schedules: recurring jobs.

-- name: overdue
SELECT s.id, s.slot, s.count AS runs, s.paused, s.over, s.owner, s.timing, s.template, 0 AS busy
FROM toril.schedules s LEFT JOIN toril.jobs j ON j.key = s.run
WHERE s.queue = $1 AND s.slot <= $2 AND s.paused = 0 AND s.over = 0 AND (j.key IS NULL OR j.place > 4)
ORDER BY s.slot LIMIT $3

-- name: put
INSERT INTO toril.schedules (queue, id, slot, run, count, owner, timing, template) VALUES ($1, $2, $3, $4, 1, $5, $6, $7)
ON CONFLICT (queue, id) DO UPDATE SET slot = excluded.slot, run = excluded.run, over = 0, owner = excluded.owner,
    timing = excluded.timing, template = excluded.template
