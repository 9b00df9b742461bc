-- transfer: what leaves for another store, and what comes from one.

-- name: set_fact
INSERT INTO toril.facts (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: keep
INSERT INTO toril.van (position, parcel) SELECT * FROM unnest($1::bigint[], $2::text[])

-- name: depart
INSERT INTO toril.departures (queue, target, paused) VALUES ($1, $2, $3)
ON CONFLICT (queue) DO UPDATE SET target = excluded.target, paused = excluded.paused

-- name: has_left
INSERT INTO toril.departed (queue, schedule) VALUES ($1, $2) ON CONFLICT DO NOTHING

-- name: run_records
SELECT key, id, name, cause, added_at, started_at, finished_at, attempts_made, stalls, worker, text, whole, subject,
    parent
FROM toril.runs_between($1, $2) ORDER BY key

-- name: minutes
SELECT minute, completed, failed FROM toril.minutes_between($1, -1, 1::bigint << 62) ORDER BY minute

-- name: slices
SELECT s.step, c.slice, c.counted
FROM unnest(ARRAY[0, 1, 3, 6, 42]) s(step), toril.slices_after($1, s.step, -1) c

-- name: insert_job
INSERT INTO toril.jobs (key, id, name, data, place, rank, attempts, attempts_made, stalls, starts, fence, priority, delay,
    expires_at, options, metadata, checkpoint, progress, result, failure, stall_cause, worker, added_at, started_at,
    finished_at, grp, ord, logs, errors, moved)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26,
    $27, $28, $29, toril.next_move($1))

-- name: insert_line
INSERT INTO toril.logs (key, number, line) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[])

-- name: insert_child
INSERT INTO toril.children (parent, standing, queue, id, text, number, name)
SELECT * FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[])
ON CONFLICT (parent, standing, queue, id) DO UPDATE
SET text = excluded.text, number = excluded.number, name = excluded.name

-- name: hold_key
INSERT INTO toril.dedups (queue, id, owner, key, till, next) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (queue, id) DO UPDATE SET owner = excluded.owner, key = excluded.key, till = excluded.till, next = excluded.next

-- name: put_schedule
INSERT INTO toril.schedules (queue, id, slot, run, count, last, paused, over, owner, timing, template)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (queue, id) DO UPDATE SET slot = excluded.slot, run = excluded.run, count = excluded.count,
    last = excluded.last, paused = excluded.paused, over = excluded.over, owner = excluded.owner,
    timing = excluded.timing, template = excluded.template

-- name: insert_dead_letter
INSERT INTO toril.letters (id, queue, job, name, data, cause, failure, failed_at, attempts, attempts_made, stalls,
    stall_cause, worker, added_at, started_at, priority, options, metadata, checkpoint, progress, grp, errors, log, kin,
    recorded)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25)
ON CONFLICT DO NOTHING

-- name: set_group
INSERT INTO toril.groups (queue, name, limits, paused) VALUES ($1, $2, $3, $4)
ON CONFLICT (queue, name) DO UPDATE SET limits = excluded.limits, paused = excluded.paused

-- name: put_circuit
INSERT INTO toril.circuits (key, circuit) VALUES ($1, $2) ON CONFLICT DO NOTHING
