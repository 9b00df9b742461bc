-- The errors of attempts that were followed by another, a line each; see `policy.attempts`. They, the progress and the log stay
-- with a dead letter. What belongs to that stands under a key of its own, below 0: the job's number may be used again.

ALTER TABLE jobs ADD COLUMN errors TEXT;
ALTER TABLE letters ADD COLUMN errors TEXT;
ALTER TABLE letters ADD COLUMN progress TEXT;
ALTER TABLE letters ADD COLUMN log INTEGER;     -- the key of its log lines
