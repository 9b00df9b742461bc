-- dedup: keys of which one job at a time is the owner.

-- name: take
INSERT INTO toril.dedups (queue, id, owner, key, till) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (queue, id) DO UPDATE SET owner = excluded.owner, key = excluded.key, till = excluded.till, next = NULL
