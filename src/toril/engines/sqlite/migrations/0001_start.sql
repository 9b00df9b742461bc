-- The first layout. A job's key is (queue << 40) + number, where number comes from the queue's own counter and is
-- also the id of jobs whose producer chose none; so such jobs need no index of ids.
--
-- A job stands in exactly one place: in `active` while someone holds its lease, else in `line` under the place and
-- rank that its own row names. A claim moves it from `line` to `active` and leaves its row alone.

CREATE TABLE queues (
    key INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given out twice
    name TEXT NOT NULL UNIQUE,
    last_number INTEGER NOT NULL DEFAULT 0,
    moves INTEGER NOT NULL DEFAULT 0,       -- grows with every entry into `line`: gives order, and dates entries
    fronts INTEGER NOT NULL DEFAULT 0,      -- grows with every entry at the front
    arrivals INTEGER NOT NULL DEFAULT 0,    -- grows when a claim may find what it did not find before
    claims INTEGER NOT NULL DEFAULT 0,      -- jobs ever handed out: gives the fences
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
    window_starts INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE jobs (
    key INTEGER PRIMARY KEY,
    id TEXT,                                -- NULL: the number within the key
    name TEXT NOT NULL,
    place INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    attempts_made INTEGER NOT NULL DEFAULT 0,
    stalls INTEGER NOT NULL DEFAULT 0,
    starts INTEGER NOT NULL DEFAULT 0,      -- how often it was handed out, and the fence of the last time
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
    data TEXT NOT NULL
) STRICT;

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

-- One row for the events of one step and kind; the key ends with the number of its last event.
CREATE TABLE events (
    key INTEGER PRIMARY KEY,
    time INTEGER NOT NULL,
    kind TEXT NOT NULL,
    size INTEGER NOT NULL,
    jobs TEXT NOT NULL,                     -- JSON: the job's id for each event
    details TEXT                            -- JSON: for each name the values, in the same order
) STRICT;

CREATE TABLE runs (
    key INTEGER PRIMARY KEY,                -- (queue << 41) + (1 << 40 if it failed) + number
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
    whole INTEGER NOT NULL
) STRICT;

CREATE TABLE minutes (
    queue INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    completed INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    PRIMARY KEY (queue, minute)
) STRICT, WITHOUT ROWID;

CREATE TABLE logs (
    key INTEGER NOT NULL,
    number INTEGER NOT NULL,
    line TEXT NOT NULL,
    PRIMARY KEY (key, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE results (
    queue INTEGER NOT NULL,
    id TEXT NOT NULL,
    till INTEGER NOT NULL,
    cause TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (queue, id)
) STRICT, WITHOUT ROWID;

-- When a job that is kept for an age is due for removal. The job may be gone, or have run again, by then.
CREATE TABLE ageing (
    queue INTEGER NOT NULL,
    till INTEGER NOT NULL,
    key INTEGER NOT NULL,
    PRIMARY KEY (queue, till, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX results_by_till ON results (queue, till);

-- Starts within a sliding rate window.
CREATE TABLE starts (
    queue INTEGER NOT NULL,
    time INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (queue, time)
) STRICT, WITHOUT ROWID;

CREATE TABLE workers (
    id TEXT PRIMARY KEY,
    till INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    orders TEXT NOT NULL DEFAULT '',
    beat TEXT NOT NULL                      -- JSON
) STRICT, WITHOUT ROWID;

-- How often each worker was called to listen.
CREATE TABLE pokes (
    worker TEXT PRIMARY KEY,
    count INTEGER NOT NULL,
    time INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

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

-- The last answer to each sender, for a call that is sent again.
CREATE TABLE calls (
    sender TEXT PRIMARY KEY,
    seq INTEGER NOT NULL,
    time INTEGER NOT NULL,
    answer TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX calls_by_time ON calls (time);
