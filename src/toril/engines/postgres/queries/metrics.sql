-- metrics: what steps count, and what a snapshot reads.

-- name: slices
SELECT slice, counted FROM toril.slices_after($1, $2, $3)

-- name: total
SELECT counted FROM toril.slices_after($1, 0, -1)

-- name: put_slice
INSERT INTO toril.slices (queue, step, slice, counted) VALUES ($1, $2, $3, $4)
ON CONFLICT (queue, step, slice) DO UPDATE SET counted = excluded.counted

-- name: minutes
SELECT minute, completed, failed FROM toril.minutes_between($1, $2, $3)
