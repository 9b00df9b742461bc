-- Queues by name. Every step that changes a queue reads its row first and writes it back last.

-- name: find
SELECT key, name, last_number, moves, fronts, arrivals, claims, waiting, suspects, prioritized, active, delayed,
    waiting_children, completed, failed, completed_total, failed_total, cancelled_total, events, paused, concurrency, max_waiting,
    rate, window_till, window_starts, held_till, flows, parked, grouped, orders, turns, groups_set, groups_declared,
    figures, resting, resting_for_children, stepping
FROM queues WHERE name = ?

-- name: create
INSERT INTO queues (name) VALUES (?)

-- name: save
UPDATE queues SET last_number = ?, moves = ?, fronts = ?, arrivals = ?, claims = ?, waiting = ?, suspects = ?,
    prioritized = ?, active = ?, delayed = ?, waiting_children = ?, completed = ?, failed = ?, completed_total = ?, failed_total = ?,
    cancelled_total = ?, events = ?, paused = ?, concurrency = ?, max_waiting = ?, rate = ?, window_till = ?, window_starts = ?,
    held_till = ?, flows = ?, parked = ?, grouped = ?, orders = ?, turns = ?, groups_set = ?, groups_declared = ?,
    figures = ?, resting = ?, resting_for_children = ?, stepping = ?
WHERE key = ?

-- name: delete
DELETE FROM queues WHERE key = ?
