-- groups: whom they let in, and when. Places from 0 to 2 are those of the line, 3 is that of delayed jobs, those below 0
-- are of parked ones; a running job's row names the place that it was claimed from.

-- name: state
SELECT v.value, coalesce(g.limits, ',,,,'), coalesce(g.paused, 0),
    (SELECT count(*) FROM jobs j WHERE j.key >> 40 = ? AND j.grp = v.value AND j.place BETWEEN 0 AND 2),
    EXISTS (SELECT 1 FROM jobs j INDEXED BY jobs_put_off
        WHERE j.key >> 40 = ? AND j.grp = v.value AND j.place = 3 AND j.starts > 0
            AND NOT EXISTS (SELECT 1 FROM rests r WHERE r.job = j.key)),
    EXISTS (SELECT 1 FROM jobs j WHERE j.key >> 40 = ? AND j.grp = v.value AND j.place < 0)
FROM json_each(?) v LEFT JOIN groups g ON g.queue = ? AND g.name = v.value

-- name: in_line
SELECT count(*) FROM jobs j LEFT JOIN active a ON a.key = j.key
WHERE j.key >> 40 = ? AND j.grp = ? AND j.place BETWEEN 0 AND 2 AND a.key IS NULL

-- name: out_of_line
SELECT count(*) FROM jobs j WHERE j.key >> 40 = ? AND j.grp = ? AND (j.place = 3 OR j.place < 0)
    AND NOT EXISTS (SELECT 1 FROM rests r WHERE r.job = j.key)

-- name: running
SELECT count(*) FROM jobs j JOIN active a ON a.key = j.key WHERE j.key >> 40 = ? AND j.grp = ? AND j.place BETWEEN 0 AND 2

-- name: first
SELECT v.value, (SELECT json_group_array(json_array(key, place, rank, priority)) FROM (
    SELECT key, place, rank, priority FROM jobs j WHERE j.key >> 40 = ? AND j.grp = v.value AND j.place < 0
    ORDER BY j.place, j.priority, j.ord LIMIT ?))
FROM json_each(?) v

-- name: of_jobs
SELECT DISTINCT j.grp FROM json_each(?) v CROSS JOIN jobs j ON j.key = v.value WHERE j.grp IS NOT NULL

-- name: of_job
SELECT grp, ord, priority FROM jobs WHERE key = ? AND grp IS NOT NULL

-- name: trim_starts
DELETE FROM group_starts WHERE queue = ? AND name = ? AND time <= ?

-- name: starts
SELECT coalesce(sum(count), 0), min(time) FROM group_starts WHERE queue = ? AND name = ? AND time > ?

-- name: start
INSERT INTO group_starts (queue, name, time, count) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET count = count + excluded.count

-- name: old_starts
DELETE FROM group_starts WHERE (queue, name, time) IN (
    SELECT queue, name, time FROM group_starts WHERE queue = ? AND time <= ? LIMIT ?)

-- name: wait_for_turn
INSERT INTO ring (queue, name, till, turn) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET turn = iif(till = excluded.till, turn, excluded.turn), till = excluded.till

-- name: next_turns
SELECT name FROM ring WHERE queue = ? AND till = 0 ORDER BY turn LIMIT ?

-- name: any_turn
SELECT 1 FROM ring WHERE queue = ? AND till = 0 LIMIT 1

-- name: due
SELECT name FROM ring WHERE queue = ? AND till > 0 AND till <= ? ORDER BY till LIMIT ?

-- name: next_till
SELECT min(till) FROM ring WHERE queue = ? AND till > 0

-- name: leave_ring
DELETE FROM ring WHERE queue = ? AND name IN (VALUES (?))

-- name: admitted
SELECT j.key, j.place, j.rank FROM jobs j LEFT JOIN active a ON a.key = j.key
WHERE j.key >> 40 = ? AND j.grp = ? AND j.place BETWEEN 0 AND 2 AND a.key IS NULL LIMIT 1000

-- name: set
INSERT INTO groups (queue, name, limits, paused) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET limits = excluded.limits, paused = excluded.paused

-- name: unset
DELETE FROM groups WHERE queue = ? AND name = ?

-- name: next_name
SELECT min(name) FROM (
    SELECT min(grp) AS name FROM jobs WHERE key >> 40 = ? AND grp > ?
    UNION ALL SELECT min(name) FROM groups WHERE queue = ? AND name > ?)

-- name: unfinished
SELECT EXISTS (SELECT 1 FROM jobs WHERE key >> 40 = ? AND grp = ? AND place < 4)
    OR EXISTS (SELECT 1 FROM groups WHERE queue = ? AND name = ?)

-- name: holders
SELECT j.key, j.id FROM jobs j WHERE j.key >> 40 = ? AND j.grp = ?
    AND (j.place BETWEEN 0 AND 2 OR (? = 1 AND j.place = 3 AND j.starts > 0
        AND NOT EXISTS (SELECT 1 FROM rests r WHERE r.job = j.key))) LIMIT 10

-- name: ahead
SELECT count(*) FROM jobs WHERE key >> 40 = ? AND grp = ? AND place < 0 AND (priority, ord) < (?, ?)

-- name: parked_groups
SELECT DISTINCT grp FROM jobs WHERE key >> 40 = ? AND grp > ? AND place < 0 ORDER BY grp LIMIT ?

-- name: forget_groups
DELETE FROM groups WHERE queue = ?

-- name: forget_ring
DELETE FROM ring WHERE queue = ?

-- name: forget_starts
DELETE FROM group_starts WHERE queue = ?
