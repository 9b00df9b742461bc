-- Queues by name: their settings in one table, their counters in another.

-- name: find
SELECT q.key, q.name, s.last_number, s.moves, s.fronts, s.arrivals, s.claims, s.waiting, s.suspects, s.prioritized,
    s.active, s.delayed, s.waiting_children, s.completed, s.failed, s.completed_total, s.failed_total,
    s.cancelled_total, s.events, q.paused, q.concurrency, q.max_waiting, q.rate, s.window_till, s.window_starts,
    s.held_till, q.flows, s.parked, q.grouped, s.orders, s.turns, q.groups_set, q.groups_declared, s.figures,
    s.resting, s.resting_for_children, q.stepping
FROM toril.queues q JOIN LATERAL (SELECT * FROM toril.standing WHERE queue = q.key ORDER BY version DESC LIMIT 1) s ON true
WHERE q.name = $1

-- name: create
SELECT toril.create_queue($1)

-- name: save
SELECT toril.save_queue($36, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
    $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35)

-- name: delete
SELECT toril.delete_queue($1)
