-- audit: who has changed what over HTTP.

-- name: add
INSERT INTO audit (at, entry) VALUES (?, ?)

-- name: trim
DELETE FROM audit WHERE seq <= (SELECT MAX(seq) FROM audit) - ?

-- name: page
SELECT seq, at, entry FROM audit WHERE seq < ? ORDER BY seq DESC LIMIT ?
