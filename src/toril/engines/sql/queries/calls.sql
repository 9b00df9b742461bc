-- calls: the last answer to each sender.

-- name: last
SELECT seq, answer FROM calls WHERE sender = ?

-- name: remember_again
UPDATE calls SET seq = ?, answer = ? WHERE sender = ? AND time = ?

-- name: remember
INSERT INTO calls (sender, seq, time, answer) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET seq = excluded.seq, time = excluded.time, answer = excluded.answer
