-- steps: what jobs record of their handlers.

-- name: count
INSERT INTO toril.recorded (job, seq, count, bytes, reruns, epoch) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (job) DO UPDATE SET seq = excluded.seq, count = excluded.count, bytes = excluded.bytes,
    reruns = excluded.reruns, epoch = excluded.epoch

-- name: claimed
SELECT r.job, r.count, r.bytes, r.reruns, r.epoch FROM toril.texts($1) v JOIN toril.recorded r ON r.job = v::bigint

-- name: rows_of
SELECT s.job, s.name, s.row FROM toril.texts($1) v JOIN toril.steps s ON s.job = v::bigint

-- name: size
SELECT count(*), coalesce(sum(octet_length(name) + octet_length(row)), 0)::bigint FROM toril.steps WHERE job = $1 AND seq >= $2
