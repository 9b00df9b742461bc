-- flows: parents and children.

-- name: of_keys
SELECT j.key, j.id, j.options FROM toril.texts($1) v JOIN toril.jobs j ON j.key = v::bigint
WHERE j.options IS NOT NULL

-- name: owners
SELECT i.id, i.key FROM toril.texts($1) v JOIN toril.ids i ON i.queue = $2 AND i.id = v

-- name: open
INSERT INTO toril.children (parent, queue, id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING

-- name: add_child
INSERT INTO toril.children (parent, standing, queue, id, text, number, name)
SELECT * FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[])
ON CONFLICT (parent, standing, queue, id) DO UPDATE
SET text = excluded.text, number = excluded.number, name = excluded.name

-- name: reopen
SELECT 1 FROM toril.move_child($1, ARRAY[1, 2, 3], $2, $3, 0, NULL) moved WHERE moved

-- name: end
SELECT 1 FROM toril.move_child($3, ARRAY[0], $4, $5, $1, $2) moved WHERE moved

-- name: resting
SELECT r.job FROM toril.rests r JOIN toril.jobs j ON j.key = r.job
WHERE r.queue = $1 AND r.children = 1 AND j.place = $2 ORDER BY r.job LIMIT $3 OFFSET $4

-- name: fail_parent
UPDATE toril.jobs SET delay = 0, options = toril.with_option(options, 'deferred', to_json($1::text)::text) WHERE key = $2

-- name: forgive
UPDATE toril.jobs SET options = toril.with_option(options, 'deferred', NULL) WHERE key = $1 AND options IS NOT NULL

-- name: parked
UPDATE toril.jobs SET options = toril.with_option(options, 'parked', $1) WHERE key = $2

-- name: adopt
UPDATE toril.jobs SET options = toril.with_option(options, 'parent', $1) WHERE key = $2

-- name: build
INSERT INTO toril.buildings (parent, queue, till) VALUES ($1, $2, $3) ON CONFLICT (parent) DO UPDATE SET till = excluded.till
