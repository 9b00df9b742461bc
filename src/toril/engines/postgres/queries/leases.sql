-- renew, report, recover: what holds while a lease holds.

-- name: renew
SELECT 1 FROM toril.renew_one($2, $3, $4, $1) renewed WHERE renewed

-- name: next_deadline
SELECT toril.next_deadline($1)
