-- How much room a queue takes: what its rows hold, and about what indexes and pages add to that.

-- name: bounds
SELECT a.key, z.key FROM (SELECT key FROM toril.jobs WHERE key >= $1 AND key < $2 ORDER BY key LIMIT 1) a,
    (SELECT key FROM toril.jobs WHERE key >= $1 AND key < $2 ORDER BY key DESC LIMIT 1) z

-- name: sizes
SELECT octet_length(j.data) + octet_length(j.name) + 260
    + coalesce(octet_length(j.options), 0) + coalesce(octet_length(j.worker), 0) + coalesce(octet_length(j.metadata), 0)
    + coalesce(octet_length(j.checkpoint), 0) + coalesce(octet_length(j.progress), 0) + coalesce(octet_length(j.failure), 0)
    + coalesce(octet_length(j.errors), 0) + coalesce(octet_length(j.result), 0) + coalesce(octet_length(j.stall_cause), 0)
    + coalesce(octet_length(j.id), 0) * 2 + coalesce(octet_length(j.grp), 0) * 2
    + CASE WHEN j.logs > 0 THEN (SELECT coalesce(sum(octet_length(line) + 60), 0) FROM toril.logs l WHERE l.key = j.key) ELSE 0 END
    + (SELECT coalesce(sum(coalesce(octet_length(text), 0) + 2 * octet_length(id) + 2 * octet_length(queue) + 80), 0)
        FROM toril.children c WHERE c.parent = j.key)
    + (SELECT coalesce(sum(octet_length(row) + 2 * octet_length(name) + 80), 0) FROM toril.steps s WHERE s.job = j.key)
    + (SELECT coalesce(sum(coalesce(octet_length(text), 0) + octet_length(name) + coalesce(octet_length(word), 0)
        + 2 * coalesce(octet_length(id), 0) + 80), 0) FROM toril.signals s WHERE s.job = j.key)
    + (SELECT coalesce(sum(octet_length(text) + 80), 0) FROM toril.rests r WHERE r.job = j.key)
FROM toril.sampled($1, $2, $3, $4) v JOIN toril.jobs j ON j.key = v

-- name: records
SELECT (coalesce((SELECT sum(pg_column_size(r.*)) FROM toril.runs r WHERE r.queue = $1), 0)
    + coalesce((SELECT sum(pg_column_size(e.*)) FROM toril.events e WHERE e.queue = $1), 0)
    + coalesce((SELECT sum(octet_length(text) + 2 * octet_length(id) + 60) FROM toril.results WHERE queue = $1), 0)
    + coalesce((SELECT sum(octet_length(timing) + octet_length(template) + 2 * octet_length(id) + 80)
        FROM toril.schedules WHERE queue = $1), 0)
    + coalesce((SELECT sum(octet_length(counted) + 60) FROM toril.slices WHERE queue = $1), 0)
    + coalesce((SELECT sum(octet_length(name) + octet_length(word) + 80) FROM toril.awaited WHERE queue = $1), 0)
    + coalesce((SELECT sum(octet_length(text) + 2 * octet_length(name) + 2 * octet_length(word)
        + coalesce(octet_length(id), 0) + 80) FROM toril.kept_signals WHERE queue = $1), 0)
    + coalesce((SELECT sum(2 * (octet_length(name) + octet_length(word) + octet_length(id)) + 140)
        FROM toril.sent_ids WHERE queue = $1), 0)
    + coalesce((SELECT count(*) * 60 FROM toril.minutes WHERE queue = $1), 0))::bigint
