-- The layout of a store. docs/layout.md says what each table is for; engines/sql/schema.py how keys and ranks are made.

-- Queues and jobs --------------------------------------------------------------------------------------------------

-- A queue's counters and settings. Every step that changes a queue reads its row first and writes it back last.
CREATE TABLE queues (
    key INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given out twice
    name TEXT NOT NULL UNIQUE,
    last_number INTEGER NOT NULL DEFAULT 0,
    moves INTEGER NOT NULL DEFAULT 0,       -- grows with every entry into `line`: gives order, and dates entries
    fronts INTEGER NOT NULL DEFAULT 0,      -- grows with every entry at the front
    arrivals INTEGER NOT NULL DEFAULT 0,    -- grows when a claim may find what it did not find before
    claims INTEGER NOT NULL DEFAULT 0,      -- jobs ever claimed: gives the fences
    waiting INTEGER NOT NULL DEFAULT 0,
    suspects INTEGER NOT NULL DEFAULT 0,
    prioritized INTEGER NOT NULL DEFAULT 0,
    active INTEGER NOT NULL DEFAULT 0,
    delayed INTEGER NOT NULL DEFAULT 0,
    waiting_children INTEGER NOT NULL DEFAULT 0,
    completed INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    completed_total INTEGER NOT NULL DEFAULT 0,
    failed_total INTEGER NOT NULL DEFAULT 0,
    events INTEGER NOT NULL DEFAULT 0,
    paused INTEGER NOT NULL DEFAULT 0,
    concurrency INTEGER,
    max_waiting INTEGER,
    rate TEXT,                              -- JSON: max, per, window
    window_till INTEGER NOT NULL DEFAULT 0, -- of a fixed rate window: its end, and the starts within it
    window_starts INTEGER NOT NULL DEFAULT 0,
    held_till INTEGER NOT NULL DEFAULT 0,   -- nothing starts before: the service that the jobs call asked for a pause
    flows INTEGER NOT NULL DEFAULT 0,       -- 1 once a job had a parent or children: who removes jobs looks for them
    parked INTEGER NOT NULL DEFAULT 0,
    grouped INTEGER NOT NULL DEFAULT 0,     -- 1 once a job had a group
    orders INTEGER NOT NULL DEFAULT 0,      -- grows with every job of a group: gives order within groups
    turns INTEGER NOT NULL DEFAULT 0,       -- grows with every turn of a group
    groups_set TEXT,                        -- limits of each group, set by hand
    groups_declared TEXT,                   -- and declared by the code
    figures TEXT,                           -- JSON: counts of the minute under way, see `slices`
    cancelled_total INTEGER NOT NULL DEFAULT 0,
    resting INTEGER NOT NULL DEFAULT 0,     -- of the delayed jobs, those that rest
    resting_for_children INTEGER NOT NULL DEFAULT 0, -- and of those that wait for children
    stepping INTEGER NOT NULL DEFAULT 0     -- what its jobs ever had: 1 a row in `recorded`, 2 `steps`, 4 `signals`, 8 `awaited`
) STRICT;

-- A job's key is (queue << 40) + number. The number comes from the queue's own counter, and is also the id of jobs
-- whose producer chose none; so such jobs need no index of ids.
--
-- A job stands in exactly one place: in `active` while someone holds its lease, else in `line` under the place and
-- rank that its own row names. A claim moves it from `line` to `active` and leaves its row alone.
CREATE TABLE jobs (
    key INTEGER PRIMARY KEY,
    id TEXT,                                -- NULL: the number within the key
    name TEXT NOT NULL,
    place INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    attempts_made INTEGER NOT NULL DEFAULT 0,
    stalls INTEGER NOT NULL DEFAULT 0,
    starts INTEGER NOT NULL DEFAULT 0,      -- how often it was claimed, and the fence of the last time
    fence INTEGER NOT NULL DEFAULT 0,
    priority INTEGER NOT NULL,
    delay INTEGER NOT NULL,
    added_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER,
    expires_at INTEGER,
    logs INTEGER NOT NULL DEFAULT 0,        -- log lines ever written
    options TEXT,                           -- JSON of what differs from the defaults
    worker TEXT,
    metadata TEXT,
    checkpoint TEXT,
    progress TEXT,
    failure TEXT,                           -- JSON: reason, kind, traceback
    stall_cause TEXT,
    result TEXT,
    data TEXT NOT NULL,
    grp TEXT,                               -- its group
    ord INTEGER NOT NULL DEFAULT 0,         -- within the group: smaller goes first
    errors TEXT                             -- of attempts that were followed by another, a line each
) STRICT;

CREATE INDEX jobs_by_group ON jobs (key >> 40, grp, place, priority, ord) WHERE grp IS NOT NULL;
CREATE INDEX jobs_put_off ON jobs (key >> 40, grp) WHERE grp IS NOT NULL AND place = 3 AND starts > 0;

CREATE TABLE ids (
    queue INTEGER NOT NULL,
    id TEXT NOT NULL,
    key INTEGER NOT NULL,
    PRIMARY KEY (queue, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE line (
    queue INTEGER NOT NULL,
    place INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    key INTEGER NOT NULL,
    moved INTEGER NOT NULL,
    PRIMARY KEY (queue, place, rank, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE active (
    key INTEGER PRIMARY KEY,
    queue INTEGER NOT NULL,
    deadline INTEGER NOT NULL,
    token TEXT NOT NULL,
    worker TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    alone INTEGER NOT NULL,
    max_stalls INTEGER NOT NULL,
    cancelling TEXT
) STRICT;

CREATE INDEX active_by_deadline ON active (queue, deadline);

CREATE TABLE logs (
    key INTEGER NOT NULL,
    number INTEGER NOT NULL,
    line TEXT NOT NULL,
    PRIMARY KEY (key, number)
) STRICT, WITHOUT ROWID;

-- Results of jobs that keep theirs for a time beyond their own.
CREATE TABLE results (
    queue INTEGER NOT NULL,
    id TEXT NOT NULL,
    till INTEGER NOT NULL,
    cause TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (queue, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX results_by_till ON results (queue, till);

-- When a job that is kept for an age is due for removal. The job may be gone, or have run again, by then.
CREATE TABLE ageing (
    queue INTEGER NOT NULL,
    till INTEGER NOT NULL,
    key INTEGER NOT NULL,
    PRIMARY KEY (queue, till, key)
) STRICT, WITHOUT ROWID;

-- Starts within a sliding rate window.
CREATE TABLE starts (
    queue INTEGER NOT NULL,
    time INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (queue, time)
) STRICT, WITHOUT ROWID;

-- Keys of which one job at a time is the owner: until `till`, or until it ends. `next` is a job to be added then.
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
    owner TEXT NOT NULL,                    -- the app whose code declares it; '' if it was made at run time
    timing TEXT NOT NULL,                   -- JSON
    template TEXT NOT NULL,                 -- JSON
    PRIMARY KEY (queue, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX schedules_by_slot ON schedules (queue, slot);

-- Flows ------------------------------------------------------------------------------------------------------------

-- What a parent knows of its children. A job's own options say whose child it is, and whether it has children.
CREATE TABLE children (
    parent INTEGER NOT NULL,                -- the key of the job that has them
    standing INTEGER NOT NULL DEFAULT 0,    -- 0 open, 1 completed, 2 failed and ignored, 3 failed, and its parent too
    queue TEXT NOT NULL,                    -- by name: the queue itself may be obliterated. '' holds a parent back
    id TEXT NOT NULL,
    text TEXT,                              -- what it returned, or why it failed
    number INTEGER,                         -- the order in which children were added, and what the parent calls them
    name TEXT,
    PRIMARY KEY (parent, standing, queue, id)
) STRICT, WITHOUT ROWID;

-- Parents that are held back because more children are on their way, and when to believe that none are.
CREATE TABLE buildings (
    parent INTEGER PRIMARY KEY,
    queue INTEGER NOT NULL,
    till INTEGER NOT NULL
) STRICT;

CREATE INDEX buildings_by_till ON buildings (queue, till);

-- Groups -----------------------------------------------------------------------------------------------------------

-- Jobs of a group take turns with those of other groups. Such a job waits parked until it is let into the line. Those
-- of a group in the line, or running, have its seats; so has, where only one runs at a time, a job that was put off
-- after it had started. Nothing is counted but these rows.
CREATE TABLE groups (
    queue INTEGER NOT NULL,
    name TEXT NOT NULL,
    limits TEXT NOT NULL,                   -- its own
    paused INTEGER NOT NULL,
    PRIMARY KEY (queue, name)
) STRICT, WITHOUT ROWID;

-- Groups that have parked jobs and room, by their turn; or, where `till` is set, whose rate is used up until then.
CREATE TABLE ring (
    queue INTEGER NOT NULL,
    name TEXT NOT NULL,
    till INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    PRIMARY KEY (queue, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX ring_by_turn ON ring (queue, till, turn);

-- Starts within the window of a group's rate.
CREATE TABLE group_starts (
    queue INTEGER NOT NULL,
    name TEXT NOT NULL,
    time INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (queue, name, time)
) STRICT, WITHOUT ROWID;

CREATE INDEX group_starts_by_time ON group_starts (queue, time);

-- Durable steps ----------------------------------------------------------------------------------------------------

-- What jobs recorded of their handlers. Those of a dead letter stand under keys below 0, as do the next two tables'.
CREATE TABLE steps (
    job INTEGER NOT NULL,
    name TEXT NOT NULL,                     -- the stored key of the step
    seq INTEGER NOT NULL,                   -- the number of the record within the job
    row TEXT NOT NULL                       -- see codec/steps.py
) STRICT;

CREATE UNIQUE INDEX steps_by_name ON steps (job, name);
CREATE INDEX steps_by_seq ON steps (job, seq);

-- Each job that has recorded steps, was sent signals, or was run again by hand.
CREATE TABLE recorded (
    job INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL DEFAULT 0,         -- of its last record
    count INTEGER NOT NULL DEFAULT 0,       -- of its rows in `steps`, and the bytes of their names and texts
    bytes INTEGER NOT NULL DEFAULT 0,
    reruns INTEGER NOT NULL DEFAULT 0,      -- how often it was run again by hand, and is to do its steps anew
    epoch INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Signals to jobs. One that has been received is kept without its text, if it has an id, to know a second one by.
CREATE TABLE signals (
    job INTEGER NOT NULL,
    number INTEGER NOT NULL,
    name TEXT NOT NULL,
    word TEXT,                              -- the key that it was sent by; NULL: to the job itself
    id TEXT,
    at INTEGER NOT NULL,
    text TEXT
) STRICT;

CREATE UNIQUE INDEX signals_by_number ON signals (job, number);
CREATE INDEX signals_by_id ON signals (job, id) WHERE id IS NOT NULL;

-- Which job waits for signals by a key.
CREATE TABLE awaited (
    queue INTEGER NOT NULL,
    name TEXT NOT NULL,
    word TEXT NOT NULL,
    job INTEGER NOT NULL,
    PRIMARY KEY (queue, name, word)
) STRICT, WITHOUT ROWID;

CREATE INDEX awaited_by_job ON awaited (job);

-- Signals by a key for which no job waits yet.
CREATE TABLE kept_signals (
    queue INTEGER NOT NULL,
    name TEXT NOT NULL,
    word TEXT NOT NULL,
    number INTEGER NOT NULL,
    id TEXT,
    at INTEGER NOT NULL,
    till INTEGER NOT NULL,
    size INTEGER NOT NULL,                  -- bytes of its text
    text TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX kept_signals_by_key ON kept_signals (queue, name, word, number);
CREATE INDEX kept_signals_by_till ON kept_signals (queue, till, size);

-- Which signals were sent by a key, to know a second one by; also when they have been received. `number` is the order.
CREATE TABLE sent_ids (
    queue INTEGER NOT NULL,
    name TEXT NOT NULL,
    word TEXT NOT NULL,
    id TEXT NOT NULL,
    number INTEGER NOT NULL,
    till INTEGER NOT NULL,
    PRIMARY KEY (queue, name, word, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX sent_ids_by_number ON sent_ids (queue, number);
CREATE INDEX sent_ids_by_till ON sent_ids (queue, till);

-- Jobs that rest, and why. Each stands in `line`, delayed or waiting for children.
CREATE TABLE rests (
    job INTEGER PRIMARY KEY,
    queue INTEGER NOT NULL,
    until INTEGER NOT NULL,
    children INTEGER NOT NULL,              -- 1: it rests for its children, perhaps among others
    text TEXT NOT NULL                      -- JSON
) STRICT;

CREATE INDEX rests_by_until ON rests (queue, until, job);
CREATE INDEX rests_for_children ON rests (queue, job) WHERE children;

-- What happened ----------------------------------------------------------------------------------------------------

-- One row for the events of one step and kind; the key ends with the number of its last event.
CREATE TABLE events (
    key INTEGER PRIMARY KEY,
    time INTEGER NOT NULL,
    kind TEXT NOT NULL,
    size INTEGER NOT NULL,
    jobs TEXT NOT NULL,                     -- JSON: the job's id for each event
    details TEXT                            -- JSON: for each name the values, in the same order
) STRICT;

-- What is remembered of jobs that ended.
CREATE TABLE runs (
    key INTEGER PRIMARY KEY,                -- (queue << 42) + (ending << 40) + number
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    cause TEXT NOT NULL,
    added_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER NOT NULL,
    attempts_made INTEGER NOT NULL,
    stalls INTEGER NOT NULL,
    worker TEXT,
    text TEXT NOT NULL,
    whole INTEGER NOT NULL,
    subject TEXT,                           -- whom the job was about, where its producer said so
    parent TEXT                             -- of a child, as queue:id; empty for the job at the top of a flow
) STRICT;

CREATE TABLE minutes (
    queue INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    completed INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    PRIMARY KEY (queue, minute)
) STRICT, WITHOUT ROWID;

-- What is counted beside completed and failed jobs: how long they waited and ran, which names failed, stalls, retries.
-- The queue's own row has the minute under way; what is over is added to slices of 1, 3, 6 and 42 minutes, and to the
-- sum of all, which is the slice 0 of 0 minutes. Each is JSON: see `policy.metrics`.
CREATE TABLE slices (
    queue INTEGER NOT NULL,
    step INTEGER NOT NULL,
    slice INTEGER NOT NULL,
    counted TEXT NOT NULL,
    PRIMARY KEY (queue, step, slice)
) STRICT, WITHOUT ROWID;

-- What is left of jobs that failed for good. A dead letter is written by the step that deletes its job, and deleted by
-- the one that stores the job again. Its children and its log stand under keys below 0: the job's number may be used
-- again.
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
    data TEXT NOT NULL,
    grp TEXT,
    kin INTEGER,                            -- the key of its children
    errors TEXT,
    progress TEXT,
    log INTEGER,                            -- the key of its log lines
    recorded INTEGER                        -- the key of its steps and signals
) STRICT;

CREATE INDEX letters_by_time ON letters (failed_at, id);

CREATE TRIGGER steps_of_letters AFTER DELETE ON letters WHEN old.recorded IS NOT NULL BEGIN
    DELETE FROM steps WHERE job = old.recorded;
    DELETE FROM recorded WHERE job = old.recorded;
    DELETE FROM signals WHERE job = old.recorded;
END;

-- Who has changed what over HTTP. The oldest go when there are too many.
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    entry TEXT NOT NULL                     -- JSON
) STRICT;

-- Workers ----------------------------------------------------------------------------------------------------------

CREATE TABLE workers (
    id TEXT PRIMARY KEY,
    till INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    orders TEXT NOT NULL DEFAULT '',
    beat TEXT NOT NULL                      -- JSON
) STRICT, WITHOUT ROWID;

-- What the code of each worker says of its queues. It goes with the worker.
CREATE TABLE declared (
    queue TEXT NOT NULL,
    worker TEXT NOT NULL,
    at INTEGER NOT NULL,
    text TEXT NOT NULL,                     -- JSON: see `Declaration.dump`
    PRIMARY KEY (queue, worker)
) STRICT, WITHOUT ROWID;

CREATE INDEX declared_by_worker ON declared (worker);

CREATE TRIGGER declared_by_the_gone AFTER DELETE ON workers BEGIN
    DELETE FROM declared WHERE worker = old.id;
END;

-- How often each worker was called to listen.
CREATE TABLE pokes (
    worker TEXT PRIMARY KEY,
    count INTEGER NOT NULL,
    time INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX pokes_by_time ON pokes (time);

CREATE TABLE leaders (
    role TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    till INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE onces (
    key TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    till INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX onces_by_till ON onces (till);

-- The last answer to each sender, for a call that is sent again.
CREATE TABLE calls (
    sender TEXT PRIMARY KEY,
    seq INTEGER NOT NULL,
    time INTEGER NOT NULL,
    answer TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX calls_by_time ON calls (time);

-- The whole store --------------------------------------------------------------------------------------------------

-- Its settings, as JSON.
CREATE TABLE facts (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Circuit breakers by their keys.
CREATE TABLE circuits (
    key TEXT PRIMARY KEY,
    circuit TEXT NOT NULL                   -- JSON
) STRICT, WITHOUT ROWID;

-- A transfer to another store: what has left its place and is not known to have arrived yet. `facts` has the batch's
-- number, its mark, and whom it is for, and for each store that sent something here the number of the last batch.
CREATE TABLE van (
    position INTEGER PRIMARY KEY,
    parcel TEXT NOT NULL                    -- JSON: what it is, and rows as they were
) STRICT;

-- Queues that leave for another store, and whether they were paused before that.
CREATE TABLE departures (
    queue INTEGER PRIMARY KEY,
    target TEXT NOT NULL,
    paused INTEGER NOT NULL
) STRICT;

-- Schedules that have left. Workers that are still here declare them again.
CREATE TABLE departed (
    queue INTEGER NOT NULL,
    schedule TEXT NOT NULL,
    PRIMARY KEY (queue, schedule)
) STRICT, WITHOUT ROWID;
