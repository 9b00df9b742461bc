-- breakers: circuits by their keys.

-- name: one
SELECT circuit FROM circuits WHERE key = ?

-- name: all
SELECT key, circuit FROM circuits ORDER BY key

-- name: put
INSERT INTO circuits (key, circuit) VALUES (?, ?) ON CONFLICT DO UPDATE SET circuit = excluded.circuit

-- name: delete
DELETE FROM circuits WHERE key = ?
