-- How much room a queue takes. Sizes are of what the rows hold; what a page adds to that is counted elsewhere.

-- name: last_job
SELECT key FROM jobs WHERE key > ? AND key < ? ORDER BY key DESC LIMIT 1

-- name: job
SELECT key,
    length(CAST(data AS BLOB)) + length(CAST(name AS BLOB)) + 60
    + ifnull(length(CAST(options AS BLOB)), 0) + ifnull(length(worker), 0) + ifnull(length(CAST(metadata AS BLOB)), 0)
    + ifnull(length(CAST(checkpoint AS BLOB)), 0) + ifnull(length(CAST(progress AS BLOB)), 0)
    + ifnull(length(CAST(failure AS BLOB)), 0) + ifnull(length(CAST(errors AS BLOB)), 0) + ifnull(length(CAST(result AS BLOB)), 0)
    + ifnull(length(stall_cause), 0) + ifnull(length(CAST(id AS BLOB)), 0),
    ifnull(length(CAST(id AS BLOB)), 0), ifnull(length(CAST(grp AS BLOB)), 0), logs
FROM jobs WHERE key >= ? AND key < ? ORDER BY key LIMIT 1

-- name: logs
SELECT count(*), ifnull(sum(length(CAST(line AS BLOB))), 0) FROM logs WHERE key = ?

-- name: children
SELECT count(*), ifnull(sum(length(CAST(text AS BLOB)) + length(CAST(id AS BLOB)) + length(CAST(queue AS BLOB))), 0)
FROM children WHERE parent = ?

-- name: steps
SELECT count(*), ifnull(sum(length(CAST(row AS BLOB)) + 2 * length(CAST(name AS BLOB)) + 24), 0) FROM steps WHERE job = ?

-- name: recorded
SELECT count(*), 16 * count(*) FROM recorded WHERE job = ?

-- name: signals
SELECT count(*), ifnull(sum(ifnull(length(CAST(text AS BLOB)), 0) + length(CAST(name AS BLOB))
    + ifnull(length(CAST(word AS BLOB)), 0) + 2 * ifnull(length(CAST(id AS BLOB)), 0) + 32), 0)
FROM signals WHERE job = ?

-- name: rests
SELECT count(*), ifnull(sum(length(CAST(text AS BLOB)) + 32), 0) FROM rests WHERE job = ?

-- name: awaited
SELECT count(*), ifnull(sum(length(CAST(name AS BLOB)) + length(CAST(word AS BLOB)) + 24), 0) FROM awaited WHERE queue = ?

-- name: kept_signals
SELECT count(*), ifnull(sum(length(CAST(text AS BLOB)) + 2 * length(CAST(name AS BLOB)) + 2 * length(CAST(word AS BLOB))
    + ifnull(length(CAST(id AS BLOB)), 0) + 40), 0)
FROM kept_signals WHERE queue = ?

-- name: sent_ids
SELECT count(*), ifnull(sum(length(CAST(name AS BLOB)) + length(CAST(word AS BLOB)) + length(CAST(id AS BLOB)) + 60), 0)
FROM sent_ids WHERE queue = ?

-- name: runs
SELECT count(*), ifnull(sum(length(CAST(text AS BLOB)) + length(id) + length(name) + ifnull(length(worker), 0)), 0)
FROM runs WHERE key >= ? AND key < ?

-- name: events
SELECT count(*), ifnull(sum(length(CAST(jobs AS BLOB)) + ifnull(length(CAST(details AS BLOB)), 0)), 0)
FROM events WHERE key > ? AND key < ?

-- name: results
SELECT count(*), ifnull(sum(length(CAST(text AS BLOB)) + 2 * length(CAST(id AS BLOB))), 0) FROM results WHERE queue = ?

-- name: schedules
SELECT count(*), ifnull(sum(length(CAST(timing AS BLOB)) + length(CAST(template AS BLOB)) + 2 * length(CAST(id AS BLOB))), 0)
FROM schedules WHERE queue = ?

-- name: slices
SELECT count(*), ifnull(sum(length(CAST(counted AS BLOB))), 0) FROM slices WHERE queue = ?

-- name: minutes
SELECT count(*), 0 FROM minutes WHERE queue = ?
