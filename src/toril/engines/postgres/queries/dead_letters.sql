-- dead_letters: jobs that failed for good.

-- name: of_ids
SELECT l.id, l.queue, l.job, l.name, l.data, l.cause, l.failure, l.failed_at, l.attempts AS max_attempts,
    l.attempts_made, l.stalls, l.stall_cause, l.worker, l.added_at, l.started_at, l.priority,
    l.options AS options_text, l.metadata, l.checkpoint, l.progress, l.grp AS group_name
FROM toril.texts($1) v JOIN toril.letters l ON l.id = v

-- name: insert_job
INSERT INTO toril.jobs (key, id, name, place, rank, attempts, priority, delay, added_at, options, metadata, checkpoint, data,
    grp, ord, moved)
VALUES ($1, $2, $3, $4, $5, $6, $7, 0, $8, $9, $10, $11, $12, $13, $14, toril.next_move($1))

-- name: set_keeping
INSERT INTO toril.facts (name, value) VALUES ('letters', $1) ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: parked
UPDATE toril.jobs SET options = toril.with_option(options, 'parked', $1) WHERE key = $2
