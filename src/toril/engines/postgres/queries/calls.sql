-- calls: the last answer to each sender.

-- name: last
SELECT seq, answer FROM toril.calls WHERE sender = $1 ORDER BY epoch DESC LIMIT 1

-- name: remember_again
SELECT toril.remember($3, $1, $4, $2)

-- name: remember
SELECT toril.remember($1, $2, $3, $4)
