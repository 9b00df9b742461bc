-- What is counted beside completed and failed jobs: how long they waited and ran, which names failed, stalls, retries. A
-- queue's own row has the minute under way; what is over is added to slices of 1, 3, 6 and 42 minutes, and to the sum of
-- all, which is the slice 0 of 0 minutes. Each is JSON: see `policy.tallies`.

ALTER TABLE queues ADD COLUMN figures TEXT;

CREATE TABLE slices (
    queue INTEGER NOT NULL,
    step INTEGER NOT NULL,
    slice INTEGER NOT NULL,
    counted TEXT NOT NULL,
    PRIMARY KEY (queue, step, slice)
) STRICT, WITHOUT ROWID;
