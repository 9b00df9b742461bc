-- control: what people and programs do to jobs and queues by hand.

-- name: jobs
SELECT j.key, j.id AS chosen, j.name, j.priority, j.attempts AS max_attempts, j.attempts_made, j.stalls,
    j.starts + (a.key IS NOT NULL)::int AS starts, coalesce(a.fence, j.fence) AS fence, j.added_at, j.started_at,
    coalesce(a.worker, j.worker) AS worker, j.logs, j.options AS options_text, j.place, j.rank,
    a.key IS NOT NULL AS running, r.job IS NOT NULL AS rests
FROM toril.texts($1) v JOIN toril.jobs j ON j.key = v::bigint LEFT JOIN toril.active a ON a.key = j.key
    LEFT JOIN toril.rests r ON r.job = j.key

-- name: ask_to_stop
UPDATE toril.jobs SET cancelling = $1 WHERE key = $2

-- name: call
SELECT toril.call_worker($1, $2)

-- name: forget_events
DELETE FROM toril.events WHERE queue = $1::bigint >> 40 AND $2::bigint > 0

-- name: forget_runs
DELETE FROM toril.runs WHERE queue = $1::bigint >> 42 AND ending >= ($1::bigint >> 40) & 3
    AND ending < CASE WHEN $2::bigint >> 42 > $1::bigint >> 42 THEN 4 ELSE (($2::bigint >> 40) & 3) + 1 END
