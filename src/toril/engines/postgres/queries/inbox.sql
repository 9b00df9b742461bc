-- Jobs that other programs have added in transactions of their own.

-- name: filled
SELECT DISTINCT queue FROM toril.inbox WHERE queue = ANY($1::text[]) AND error IS NULL

-- name: take
WITH gone AS (
    DELETE FROM toril.inbox WHERE id IN (
        SELECT id FROM toril.inbox WHERE queue = $1 AND error IS NULL ORDER BY id LIMIT $2
    ) RETURNING id, request, added_at
)
SELECT request, added_at FROM gone ORDER BY id

-- name: first
SELECT id, job_id FROM toril.inbox WHERE queue = $1 AND error IS NULL ORDER BY id LIMIT 1

-- name: refuse
UPDATE toril.inbox SET error = $2 WHERE id = $1
