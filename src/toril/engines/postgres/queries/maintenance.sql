-- maintenance: prune, heartbeat, lead, signal, once.

-- name: old_calls
DELETE FROM toril.calls WHERE sender IN (
    SELECT sender FROM toril.calls WHERE time <= $1 AND NOT starts_with(sender, rtrim($2, '*')) LIMIT $3)

-- name: old_minutes
DELETE FROM toril.minutes WHERE queue = $1 AND minute < $2

-- name: heartbeat
INSERT INTO toril.workers (id, till, seen_at, beat) VALUES ($1, $2, $3, $4)
ON CONFLICT (id) DO UPDATE SET till = excluded.till, seen_at = excluded.seen_at, beat = excluded.beat,
    orders = CASE WHEN workers.beat::json ->> 'started_at' = excluded.beat::json ->> 'started_at' THEN workers.orders ELSE '' END

-- name: declare
INSERT INTO toril.declared (queue, worker, at, text) SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[])

-- name: stopped
DELETE FROM toril.workers WHERE id = $1 AND beat::json ->> 'started_at' = $2

-- name: lead
INSERT INTO toril.leaders (role, owner, till) VALUES ($1, $2, $3)
ON CONFLICT (role) DO UPDATE SET owner = excluded.owner, till = excluded.till
WHERE leaders.owner = excluded.owner OR leaders.till <= $4

-- name: once
INSERT INTO toril.onces (key, owner, till) VALUES ($1, $2, $3)
ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, till = excluded.till WHERE onces.till <= $4
