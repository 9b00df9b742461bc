-- What is left of jobs that failed for good. A letter is written by the step that deletes its job, and deleted by the
-- one that stores the job again.

CREATE TABLE letters (
    id TEXT PRIMARY KEY,                    -- made of queue and job
    queue TEXT NOT NULL,                    -- by name: the queue itself may be obliterated
    job TEXT NOT NULL,
    name TEXT NOT NULL,
    cause TEXT NOT NULL,
    failed_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    attempts_made INTEGER NOT NULL,
    stalls INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    added_at INTEGER NOT NULL,
    started_at INTEGER,
    worker TEXT,
    options TEXT,
    metadata TEXT,
    checkpoint TEXT,
    stall_cause TEXT,
    failure TEXT NOT NULL,
    data TEXT NOT NULL
) STRICT;

CREATE INDEX letters_by_time ON letters (failed_at, id);

-- Settings of the whole store, as JSON.
CREATE TABLE facts (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE circuits (
    key TEXT PRIMARY KEY,
    circuit TEXT NOT NULL                   -- JSON
) STRICT, WITHOUT ROWID;
