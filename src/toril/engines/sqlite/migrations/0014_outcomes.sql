-- Cancelled jobs are counted and remembered apart from failed ones. A run record's key has two bits for how the run ended:
-- (queue << 42) + (ending << 40) + number. Records under the keys of before are forgotten.

ALTER TABLE queues ADD COLUMN cancelled_total INTEGER NOT NULL DEFAULT 0;

DELETE FROM runs;

-- A run record of a child names its parent, as queue:id; that of the job at the top of a flow has an empty text.
ALTER TABLE runs ADD COLUMN parent TEXT;
