-- rests: what jobs that rest wait for.

-- name: await
INSERT INTO toril.awaited (queue, name, word, job) VALUES ($1, $2, $3, $4)
ON CONFLICT (queue, name, word) DO UPDATE SET job = excluded.job

-- name: kept
SELECT 1 FROM json_array_elements($1::json) v
    JOIN toril.kept_signals k ON k.queue = $2 AND k.name = v ->> 0 AND k.word = v ->> 1 AND k.till > $3
LIMIT 1
