-- faults: what does not fit together. A job's row is its entry in the line, so there is none without a job.

-- name: line
SELECT l.place, l.rank, l.key, true, j.id, false
FROM toril.line l JOIN toril.jobs j ON j.key = l.key
WHERE l.queue = $1 AND (l.place, l.rank, l.key) > (greatest($2::bigint, -32768)::smallint, $3::bigint, $4::bigint)
ORDER BY l.place, l.rank, l.key LIMIT $5

-- name: enter
SELECT toril.put_back($4, $2, $5) WHERE $1::int IS NOT NULL AND $3::bigint IS NOT NULL

-- name: leave
SELECT 1 FROM (SELECT $1::int, $2::int, $3::bigint, $4::bigint) v WHERE false

-- name: leave_active
SELECT toril.let_go(ARRAY[$1::bigint])

-- name: stand
UPDATE toril.jobs SET place = $1, rank = $2, moved = toril.next_move($3) WHERE key = $3

-- name: waits
SELECT 1 FROM toril.jobs j JOIN toril.children c ON c.parent = j.key AND c.standing = 0
WHERE j.key = $1 AND toril.option(j.options, 'deferred') IS NULL LIMIT 1
