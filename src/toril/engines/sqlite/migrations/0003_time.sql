-- Recurring jobs. `run` is the key of the current run's job, which may have ended and be gone.

CREATE TABLE schedules (
    queue INTEGER NOT NULL,
    id TEXT NOT NULL,
    slot INTEGER NOT NULL,                  -- the time of the current run
    run INTEGER,
    count INTEGER NOT NULL,                 -- runs made
    last INTEGER,                           -- the key of the run started last
    paused INTEGER NOT NULL DEFAULT 0,
    over INTEGER NOT NULL DEFAULT 0,        -- 1: limit or end is reached
    origin TEXT NOT NULL,
    timing TEXT NOT NULL,                   -- JSON
    template TEXT NOT NULL,                 -- JSON
    PRIMARY KEY (queue, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX schedules_by_slot ON schedules (queue, slot);

-- Keys of which one job at a time is the owner: until `till`, or until it ends. `next` is a job to be made then.
CREATE TABLE dedups (
    queue INTEGER NOT NULL,
    id TEXT NOT NULL,
    owner TEXT NOT NULL,                    -- the job's id, which may be asked for when the job is gone
    key INTEGER NOT NULL,
    till INTEGER,
    next TEXT,                              -- JSON
    PRIMARY KEY (queue, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX dedups_by_key ON dedups (key);
CREATE INDEX dedups_by_till ON dedups (queue, till) WHERE till IS NOT NULL;

-- Nothing starts before: whom the jobs call has had enough for a while.
ALTER TABLE queues ADD COLUMN held_till INTEGER NOT NULL DEFAULT 0;
