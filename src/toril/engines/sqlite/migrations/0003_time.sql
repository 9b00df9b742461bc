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
