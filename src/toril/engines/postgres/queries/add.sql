-- add: the row of a job says by itself where the job stands.

-- name: owners
SELECT i.id, i.key FROM toril.texts($1) v JOIN toril.ids i ON i.queue = $2 AND i.id = v

-- name: insert_id
INSERT INTO toril.ids (queue, id, key) SELECT * FROM unnest($1::int[], $2::text[], $3::bigint[])

-- name: forget_results
DELETE FROM toril.results WHERE queue = $1 AND id = ANY($2::text[])

-- name: insert_job
INSERT INTO toril.jobs (key, id, name, place, rank, attempts, priority, delay, added_at, expires_at, options, metadata, data,
    moved)
SELECT v.*, (SELECT toril.next_move(($1::bigint[])[1]))
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::int[], $5::bigint[], $6::int[], $7::int[], $8::bigint[],
    $9::bigint[], $10::bigint[], $11::text[], $12::text[], $13::text[]) v

-- name: insert_grouped
INSERT INTO toril.jobs (key, id, name, place, rank, attempts, priority, delay, added_at, expires_at, options, metadata, data,
    grp, ord, moved)
SELECT v.*, (SELECT toril.next_move(($1::bigint[])[1]))
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::int[], $5::bigint[], $6::int[], $7::int[], $8::bigint[],
    $9::bigint[], $10::bigint[], $11::text[], $12::text[], $13::text[], $14::text[], $15::bigint[]) v

-- name: place_of
SELECT j.place, EXISTS (SELECT 1 FROM toril.active a WHERE a.key = j.key) FROM toril.jobs j WHERE j.key = $1
