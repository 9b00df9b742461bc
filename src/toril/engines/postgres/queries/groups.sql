-- groups: whom they let in, and when. A running job is in place 0, wherever it was claimed from.

-- name: state
SELECT v, coalesce(g.limits, ',,,,'), coalesce(g.paused, 0),
    (SELECT count(*) FROM toril.jobs j WHERE j.queue = $1 AND j.grp = v AND j.place BETWEEN 0 AND 2),
    EXISTS (SELECT 1 FROM toril.jobs j WHERE j.queue = $2 AND j.grp = v AND j.place = 3 AND j.starts > 0
        AND NOT EXISTS (SELECT 1 FROM toril.rests r WHERE r.job = j.key)),
    EXISTS (SELECT 1 FROM toril.jobs j WHERE j.queue = $3 AND j.grp = v AND j.place < 0)
FROM toril.texts($4) v LEFT JOIN toril.groups g ON g.queue = $5 AND g.name = v

-- name: in_line
SELECT count(*) FROM toril.jobs j WHERE j.queue = $1 AND j.grp = $2 AND j.place BETWEEN 0 AND 2
    AND NOT EXISTS (SELECT 1 FROM toril.active a WHERE a.key = j.key)

-- name: out_of_line
SELECT count(*) FROM toril.jobs j WHERE j.queue = $1 AND j.grp = $2 AND (j.place = 3 OR j.place < 0)
    AND NOT EXISTS (SELECT 1 FROM toril.rests r WHERE r.job = j.key)

-- name: running
SELECT count(*) FROM toril.jobs j JOIN toril.active a ON a.key = j.key WHERE j.queue = $1 AND j.grp = $2
    AND j.place BETWEEN 0 AND 2

-- name: first
SELECT v, coalesce((SELECT json_agg(json_build_array(key, place, rank, priority)) FROM (
    SELECT key, place, rank, priority FROM toril.jobs j WHERE j.queue = $1 AND j.grp = v AND j.place < 0
    ORDER BY j.place, j.priority, j.ord LIMIT $2) p), '[]')::text
FROM toril.texts($3) v

-- name: of_jobs
SELECT DISTINCT j.grp FROM toril.texts($1) v JOIN toril.jobs j ON j.key = v::bigint WHERE j.grp IS NOT NULL

-- name: starts
SELECT coalesce(sum(count), 0)::bigint, min(time) FROM toril.group_starts WHERE queue = $1 AND name = $2 AND time > $3

-- name: start
INSERT INTO toril.group_starts (queue, name, time, count) VALUES ($1, $2, $3, $4)
ON CONFLICT (queue, name, time) DO UPDATE SET count = group_starts.count + excluded.count

-- name: wait_for_turn
INSERT INTO toril.ring (queue, name, till, turn) VALUES ($1, $2, $3, $4)
ON CONFLICT (queue, name) DO UPDATE
SET turn = CASE WHEN ring.till = excluded.till THEN ring.turn ELSE excluded.turn END, till = excluded.till

-- name: leave_ring
DELETE FROM toril.ring WHERE queue = $1 AND name = ANY($2::text[])

-- name: admitted
SELECT j.key, j.place, j.rank FROM toril.jobs j WHERE j.queue = $1 AND j.grp = $2 AND j.place BETWEEN 0 AND 2
    AND NOT EXISTS (SELECT 1 FROM toril.active a WHERE a.key = j.key) LIMIT 1000

-- name: set
INSERT INTO toril.groups (queue, name, limits, paused) VALUES ($1, $2, $3, $4)
ON CONFLICT (queue, name) DO UPDATE SET limits = excluded.limits, paused = excluded.paused

-- name: next_name
SELECT min(name) FROM (
    SELECT min(grp) AS name FROM toril.jobs WHERE queue = $1 AND grp > $2
    UNION ALL SELECT min(name) FROM toril.groups WHERE queue = $3 AND name > $4) n

-- name: unfinished
SELECT EXISTS (SELECT 1 FROM toril.jobs WHERE queue = $1 AND grp = $2 AND place < 4)
    OR EXISTS (SELECT 1 FROM toril.groups WHERE queue = $3 AND name = $4)

-- name: holders
SELECT j.key, j.id FROM toril.jobs j WHERE j.queue = $1 AND j.grp = $2
    AND (j.place BETWEEN 0 AND 2 OR ($3::int = 1 AND j.place = 3 AND j.starts > 0
        AND NOT EXISTS (SELECT 1 FROM toril.rests r WHERE r.job = j.key))) LIMIT 10

-- name: ahead
SELECT count(*) FROM toril.jobs WHERE queue = $1 AND grp = $2 AND place < 0 AND (priority, ord) < ($3, $4)

-- name: parked_groups
SELECT DISTINCT grp FROM toril.jobs WHERE queue = $1 AND grp > $2 AND place < 0 ORDER BY grp LIMIT $3
