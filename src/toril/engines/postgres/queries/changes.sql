-- What several operations write. Statements for many rows take a list for each column.

-- name: forget_dead_letter_logs
DELETE FROM toril.logs WHERE key IN (SELECT log FROM toril.letters WHERE id = ANY($1::text[]))

-- name: forget_dead_letter_children
DELETE FROM toril.children WHERE parent IN (SELECT kin FROM toril.letters WHERE id = ANY($1::text[]))

-- name: forget_dead_letter
DELETE FROM toril.letters WHERE id = ANY($1::text[])

-- name: dead_letter
INSERT INTO toril.letters (id, queue, job, cause, failure, failed_at, attempts_made, stalls, started_at, worker,
    name, attempts, priority, added_at, options, metadata, checkpoint, progress, errors, stall_cause, data, grp, log, kin,
    recorded)
SELECT v.id, v.queue, v.job, v.cause, v.failure, v.failed_at, v.made, v.stalls, v.started_at, v.worker,
    j.name, j.attempts, j.priority, j.added_at, j.options, j.metadata, j.checkpoint, j.progress, j.errors, j.stall_cause,
    j.data, j.grp, CASE WHEN j.logs > 0 THEN -j.key END, CASE WHEN toril.option(j.options, 'parked') IS NOT NULL THEN -j.key END,
    (SELECT -r.job FROM toril.recorded r WHERE r.job = j.key)
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::int[], $9::int[],
    $10::bigint[], $11::text[]) v(key, id, queue, job, cause, failure, failed_at, made, stalls, started_at, worker)
    JOIN toril.jobs j ON j.key = v.key
ON CONFLICT (id) DO UPDATE SET queue = excluded.queue, job = excluded.job, cause = excluded.cause,
    failure = excluded.failure, failed_at = excluded.failed_at, attempts_made = excluded.attempts_made,
    stalls = excluded.stalls, started_at = excluded.started_at, worker = excluded.worker, name = excluded.name,
    attempts = excluded.attempts, priority = excluded.priority, added_at = excluded.added_at, options = excluded.options,
    metadata = excluded.metadata, checkpoint = excluded.checkpoint, progress = excluded.progress,
    errors = excluded.errors, stall_cause = excluded.stall_cause, data = excluded.data, grp = excluded.grp,
    log = excluded.log, kin = excluded.kin, recorded = excluded.recorded

-- name: move_logs
UPDATE toril.logs SET key = -key WHERE key = ANY($1::bigint[])

-- name: move_children
UPDATE toril.children SET parent = -parent WHERE parent = ANY($1::bigint[])

-- name: move_recorded
UPDATE toril.recorded SET job = -job WHERE job = ANY($1::bigint[])

-- name: move_steps
UPDATE toril.steps SET job = -job WHERE job = ANY($1::bigint[])

-- name: move_signals
UPDATE toril.signals SET job = -job WHERE job = ANY($1::bigint[])

-- name: delete_recorded
DELETE FROM toril.recorded WHERE job = ANY($1::bigint[])

-- name: delete_steps
DELETE FROM toril.steps WHERE job = ANY($1::bigint[])

-- name: delete_signals
DELETE FROM toril.signals WHERE job = ANY($1::bigint[])

-- name: stop_awaiting
DELETE FROM toril.awaited WHERE job = ANY($1::bigint[])

-- name: drop_unread
DELETE FROM toril.signals WHERE job = ANY($1::bigint[]) AND text IS NOT NULL

-- name: rest
INSERT INTO toril.rests (job, queue, until, children, text)
SELECT * FROM unnest($1::bigint[], $2::int[], $3::bigint[], $4::int[], $5::text[])

-- name: never_expires
UPDATE toril.jobs SET expires_at = NULL WHERE key = ANY($1::bigint[]) AND expires_at IS NOT NULL

-- name: wake
DELETE FROM toril.rests WHERE job = ANY($1::bigint[])

-- name: wake_parent
DELETE FROM toril.rests WHERE job = ANY($1::bigint[])

-- name: error
UPDATE toril.jobs SET errors = CASE
    WHEN errors IS NULL THEN v.line
    WHEN length(errors) - length(replace(errors, E'\n', '')) < v.kept THEN errors || E'\n' || v.line
    ELSE substr(errors, strpos(errors, E'\n') + 1) || E'\n' || v.line END
FROM unnest($1::bigint[], $2::text[], $3::int[]) v(key, line, kept) WHERE jobs.key = v.key

-- name: enter
SELECT 1 FROM (SELECT $1::int[], $2::int[], $3::bigint[], $4::bigint[], $5::bigint[]) v WHERE false

-- name: leave
SELECT 1 FROM (SELECT $1::int[], $2::int[], $3::bigint[], $4::bigint[]) v WHERE false

-- name: place
UPDATE toril.jobs SET place = v.place, rank = v.rank, moved = (SELECT toril.next_move(($1::bigint[])[1])), cancelling = NULL
FROM unnest($1::bigint[], $2::int[], $3::bigint[]) v(key, place, rank) WHERE jobs.key = v.key

-- name: leave_active
SELECT toril.let_go($1::bigint[])

-- name: delete_job
DELETE FROM toril.jobs WHERE key = ANY($1::bigint[])

-- name: delete_id
DELETE FROM toril.ids WHERE queue = $1 AND id = ANY($2::text[])

-- name: delete_logs
DELETE FROM toril.logs WHERE key = ANY($1::bigint[])

-- name: orphan
DELETE FROM toril.children WHERE parent = ANY($1::bigint[])

-- name: disown
DELETE FROM toril.dedups WHERE key = ANY($1::bigint[])

-- name: event
INSERT INTO toril.events (queue, last, time, kind, size, jobs, details)
SELECT key >> 40, key & ((1::bigint << 40) - 1), time, kind, size, jobs, details
FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::int[], $5::text[], $6::text[]) v(key, time, kind, size, jobs, details)

-- name: trim_events
DELETE FROM toril.events WHERE queue = $1::bigint >> 40 AND last <= $2::bigint & ((1::bigint << 40) - 1)

-- name: run
SELECT toril.note_runs($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::int[], $9::int[], $10::text[], $11::text[], $12::int[]::boolean[], $13::text[], $14::text[])

-- name: trim_runs
DELETE FROM toril.runs WHERE queue = $1::bigint >> 42 AND ending = $1::bigint >> 40 & 3
    AND last <= $2::bigint & ((1::bigint << 40) - 1) AND (ending <> 0 OR last < coalesce((
        SELECT min(e.completed) FROM toril.events e WHERE e.queue = $1::bigint >> 42 AND e.completed IS NOT NULL), 1::bigint << 40)
        AND (counted = 1 OR last <= (
            SELECT folded FROM toril.standing WHERE queue = $1::bigint >> 42 ORDER BY version DESC LIMIT 1)))

-- name: minute
INSERT INTO toril.minutes (queue, minute, completed, failed) VALUES ($1, $2, $3, $4)
ON CONFLICT (queue, minute) DO UPDATE SET completed = minutes.completed + excluded.completed,
    failed = minutes.failed + excluded.failed

-- name: result
INSERT INTO toril.results (queue, id, till, cause, text)
SELECT * FROM unnest($1::int[], $2::text[], $3::bigint[], $4::text[], $5::text[])
ON CONFLICT (queue, id) DO UPDATE SET till = excluded.till, cause = excluded.cause, text = excluded.text

-- name: keep
UPDATE toril.jobs SET place = v.place, rank = v.rank, attempts_made = v.made, stalls = v.stalls, starts = v.starts,
    fence = v.fence, started_at = v.started_at, finished_at = v.finished_at, worker = v.worker, result = v.result,
    failure = coalesce(v.failure, jobs.failure), cancelling = NULL, moved = (SELECT toril.next_move(($1::bigint[])[1]))
FROM unnest($1::bigint[], $2::int[], $3::bigint[], $4::int[], $5::int[], $6::int[], $7::bigint[], $8::bigint[], $9::bigint[],
    $10::text[], $11::text[], $12::text[])
    v(key, place, rank, made, stalls, starts, fence, started_at, finished_at, worker, result, failure)
WHERE jobs.key = v.key

-- name: stand
UPDATE toril.jobs SET attempts_made = v.made, stalls = v.stalls, starts = v.starts, fence = v.fence,
    started_at = v.started_at, worker = v.worker, delay = coalesce(v.delay, jobs.delay),
    failure = coalesce(v.failure, jobs.failure), stall_cause = coalesce(v.cause, jobs.stall_cause)
FROM unnest($1::bigint[], $2::int[], $3::int[], $4::int[], $5::bigint[], $6::bigint[], $7::text[], $8::bigint[], $9::text[],
    $10::text[]) v(key, made, stalls, starts, fence, started_at, worker, delay, failure, cause)
WHERE jobs.key = v.key

-- name: age
INSERT INTO toril.ageing (queue, till, key) SELECT * FROM unnest($1::int[], $2::bigint[], $3::bigint[]) ON CONFLICT DO NOTHING

-- name: forget_age
DELETE FROM toril.ageing WHERE (queue, till, key) IN (SELECT * FROM unnest($1::int[], $2::bigint[], $3::bigint[]))
