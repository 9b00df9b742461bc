-- rests: what jobs that rest wait for.

-- name: awaits
SELECT a.job FROM awaited a JOIN jobs j ON j.key = a.job WHERE a.queue = ? AND a.name = ? AND a.word = ?

-- name: await
INSERT INTO awaited (queue, name, word, job) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET job = excluded.job

-- name: await_no_more
DELETE FROM awaited WHERE queue = ? AND name = ? AND word = ? AND job = ?

-- name: unread
SELECT name, word FROM signals WHERE job = ? AND text IS NOT NULL

-- name: kept
SELECT 1 FROM json_each(?) v CROSS JOIN kept_signals k
WHERE k.queue = ? AND k.name = json_extract(v.value, '$[0]') AND k.word = json_extract(v.value, '$[1]') AND k.till > ?
LIMIT 1

-- name: rest_of
SELECT text FROM rests WHERE job = ?

-- name: by_until
SELECT job, until, text FROM rests WHERE queue = ? AND (until, job) > (?, ?) ORDER BY until, job
