-- breakers: circuits by their keys.

-- name: put
INSERT INTO toril.circuits (key, circuit) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET circuit = excluded.circuit
