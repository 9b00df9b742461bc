-- claim: jobs get ranks of their own while they run, one lease for all that are claimed together.

-- name: leave_up_to
SELECT 1 FROM (SELECT $1::int, $2::int, $3::bigint) v WHERE false

-- name: hold
SELECT toril.hold($1::bigint[], ($2::int[])[1], ($3::bigint[])[1], ($4::text[])[1], ($5::text[])[1], ($6::bigint[])[1],
    ($7::bigint[])[1], ($8::int[])[1], ($9::int[])[1])

-- name: held_again
SELECT j.key, j.id AS chosen, j.name, j.priority, j.attempts AS max_attempts, j.attempts_made, j.stalls, j.starts, j.fence,
    j.added_at, j.started_at, j.worker, j.logs, j.options AS options_text, j.delay, j.metadata, j.checkpoint, j.data,
    a.fence AS held_fence, a.alone
FROM toril.texts($1) WITH ORDINALITY v(value, at)
    JOIN toril.active a ON a.key = v.value::bigint AND a.token = $2 AND a.deadline > $3 JOIN toril.jobs j ON j.key = a.key
ORDER BY v.at

-- name: starts
SELECT coalesce(sum(count), 0)::bigint, min(time) FROM toril.starts WHERE queue = $1

-- name: start
INSERT INTO toril.starts (queue, time, count) VALUES ($1, $2, $3)
ON CONFLICT (queue, time) DO UPDATE SET count = starts.count + excluded.count
