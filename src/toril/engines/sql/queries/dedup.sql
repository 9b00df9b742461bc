-- dedup: keys of which one job at a time is the owner.

-- name: owner
SELECT d.owner, d.key, d.till, j.place, j.rank, (a.key IS NOT NULL OR r.job IS NOT NULL) AS running, j.logs,
    j.id AS chosen
FROM dedups d LEFT JOIN jobs j ON j.key = d.key LEFT JOIN active a ON a.key = d.key LEFT JOIN rests r ON r.job = d.key
WHERE d.queue = ? AND d.id = ?

-- name: take
INSERT INTO dedups (queue, id, owner, key, till) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET owner = excluded.owner, key = excluded.key, till = excluded.till, next = NULL

-- name: extend
UPDATE dedups SET till = ? WHERE queue = ? AND id = ?

-- name: keep
UPDATE dedups SET next = ?, till = NULL WHERE queue = ? AND id = ?

-- name: next
SELECT next FROM dedups WHERE queue = ? AND id = ? AND key = ? AND till IS NULL

-- name: left
SELECT key FROM dedups WHERE queue = ? AND id = ? AND till IS NULL AND next IS NOT NULL

-- name: release
DELETE FROM dedups WHERE queue = ? AND id = ?
