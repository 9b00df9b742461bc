-- signals: what is sent to jobs.

-- name: unread
SELECT count(*), coalesce(sum(octet_length(text)), 0)::bigint FROM toril.signals WHERE job = $1 AND text IS NOT NULL

-- name: note
INSERT INTO toril.recorded (job) VALUES ($1) ON CONFLICT DO NOTHING

-- name: kept_size
SELECT count(*), coalesce(sum(size), 0)::bigint FROM toril.kept_signals WHERE queue = $1 AND till > $2

-- name: kept
SELECT k.number, k.name, k.word, k.id, k.at, k.text FROM json_array_elements($1::json) v
    JOIN toril.kept_signals k ON k.queue = $2 AND k.name = v ->> 0 AND k.word = v ->> 1 AND k.till > $3
ORDER BY k.number

-- name: remember_sent
INSERT INTO toril.sent_ids (queue, name, word, id, number, till)
SELECT * FROM unnest($1::int[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[])
ON CONFLICT (queue, name, word, id) DO UPDATE SET number = excluded.number, till = excluded.till
