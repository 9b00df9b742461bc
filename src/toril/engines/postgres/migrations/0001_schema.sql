-- The layout of a store in a schema of its own. `toril.` stands for that schema; engines/sql/schema.py says how keys and
-- ranks are made. Texts that are compared or sorted are so byte for byte.

-- Queues and jobs --------------------------------------------------------------------------------------------------

-- A queue's settings. Who changes anything of a queue locks its row first.
CREATE TABLE toril.queues (
    key integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- never given out twice
    name text COLLATE "C" NOT NULL UNIQUE,
    paused smallint NOT NULL DEFAULT 0,
    concurrency bigint,
    max_waiting bigint,
    rate text,                              -- JSON: max, per, window
    flows smallint NOT NULL DEFAULT 0,      -- 1 once a job had a parent or children
    grouped smallint NOT NULL DEFAULT 0,    -- 1 once a job had a group
    groups_set text,                        -- limits of each group, set by hand
    groups_declared text,                   -- and declared by the code
    results_awaited_till bigint NOT NULL DEFAULT 0, -- until then someone waits for results, and has to be notified
    stepping smallint NOT NULL DEFAULT 0    -- what its jobs ever had: 1 a row in `recorded`, 2 `steps`, 4 `signals`,
                                            -- 8 `awaited`
) WITH (fillfactor = 50);

-- A queue's counters, which every step changes. The newest version holds. It is updated in place 63 times, then written
-- anew under the next version: so a transaction that keeps old rows alive makes no later read slower.
CREATE TABLE toril.standing (
    queue integer NOT NULL,
    version bigint NOT NULL,
    step bigint NOT NULL DEFAULT 0,
    last_number bigint NOT NULL DEFAULT 0,
    moves bigint NOT NULL DEFAULT 0,
    fronts bigint NOT NULL DEFAULT 0,
    fronts_taken bigint NOT NULL DEFAULT 0, -- what `fronts` was when nothing stood at the front any more
    head bigint NOT NULL DEFAULT 0,         -- jobs of place 0 with a rank from 1 to this have been claimed
    arrivals bigint NOT NULL DEFAULT 0,
    claims bigint NOT NULL DEFAULT 0,
    waiting bigint NOT NULL DEFAULT 0,
    suspects bigint NOT NULL DEFAULT 0,
    prioritized bigint NOT NULL DEFAULT 0,
    active bigint NOT NULL DEFAULT 0,
    delayed bigint NOT NULL DEFAULT 0,
    waiting_children bigint NOT NULL DEFAULT 0,
    completed bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    completed_total bigint NOT NULL DEFAULT 0,
    failed_total bigint NOT NULL DEFAULT 0,
    cancelled_total bigint NOT NULL DEFAULT 0,
    events bigint NOT NULL DEFAULT 0,
    window_till bigint NOT NULL DEFAULT 0,
    window_starts bigint NOT NULL DEFAULT 0,
    held_till bigint NOT NULL DEFAULT 0,
    parked bigint NOT NULL DEFAULT 0,
    orders bigint NOT NULL DEFAULT 0,
    turns bigint NOT NULL DEFAULT 0,
    figures text,                           -- JSON: counts of the minute under way, see `slices`
    resting bigint NOT NULL DEFAULT 0,      -- of the delayed jobs, those that rest
    resting_for_children bigint NOT NULL DEFAULT 0, -- and of those that wait for children
    folded bigint NOT NULL DEFAULT 0,       -- completed runs up to this one are in `slices` and `minutes`
    awaited smallint NOT NULL DEFAULT 0,    -- 1: someone waits for jobs, and has to be notified of the next
    PRIMARY KEY (queue, version)
) WITH (
    fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0
);

-- A job's key is (queue << 40) + number. The number comes from the queue's own counter, and is also the id of jobs
-- whose producer chose none.
--
-- The row names the place and the rank at which the job stands. A claim leaves the rows of those at the end of the
-- line alone: it moves `head` over them, and writes one lease for the stretch. Others it gives ranks far below 0 in
-- place 0, where only running jobs are. So a job runs exactly if it is in place 0, with a rank up to -2^59, or from 1 up
-- to `head`; and who has a lease over that rank runs it.
CREATE TABLE toril.jobs (
    key bigint PRIMARY KEY,
    queue integer GENERATED ALWAYS AS ((key >> 40)::integer) STORED,
    place smallint NOT NULL,
    rank bigint NOT NULL,
    moved bigint,                           -- dates the entry into its place; NULL where that is the rank
    added_at bigint NOT NULL,
    delay bigint NOT NULL DEFAULT 0,
    fence bigint NOT NULL DEFAULT 0,
    started_at bigint,
    finished_at bigint,
    expires_at bigint,
    ord bigint NOT NULL DEFAULT 0,
    attempts integer NOT NULL DEFAULT 1,
    attempts_made integer NOT NULL DEFAULT 0,
    stalls integer NOT NULL DEFAULT 0,
    starts integer NOT NULL DEFAULT 0,
    priority integer NOT NULL DEFAULT 0,
    logs integer NOT NULL DEFAULT 0,
    name text COLLATE "C" NOT NULL,
    id text COLLATE "C",                    -- NULL: the number within the key
    grp text COLLATE "C",
    options text,
    worker text,
    metadata text,
    checkpoint text,
    progress text,
    failure text,
    stall_cause text,
    cancelling text,                        -- why the attempt under way is asked to stop
    result text,
    errors text,
    data text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX jobs_line ON toril.jobs (queue, place, rank);
CREATE INDEX jobs_by_group ON toril.jobs (queue, grp, place, priority, ord) WHERE grp IS NOT NULL;
CREATE INDEX jobs_put_off ON toril.jobs (queue, grp) WHERE grp IS NOT NULL AND place = 3 AND starts > 0;

CREATE TABLE toril.ids (
    queue integer NOT NULL,
    id text COLLATE "C" NOT NULL,
    key bigint NOT NULL,
    PRIMARY KEY (queue, id)
);

-- Who runs the jobs of place 0 from one rank to another, as far as they are still there.
CREATE TABLE toril.leases (
    queue integer NOT NULL,
    token text COLLATE "C" NOT NULL,
    low bigint NOT NULL,
    high bigint NOT NULL,
    open integer NOT NULL,                  -- jobs that are still there
    max_stalls integer NOT NULL,
    alone smallint NOT NULL,
    fence bigint NOT NULL,                  -- of the job at `low`; each after it has the next one
    started_at bigint NOT NULL,
    deadline bigint NOT NULL,
    worker text NOT NULL,
    PRIMARY KEY (queue, token, low)
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX leases_by_deadline ON toril.leases (deadline);

-- The same facts as tables that the shared statements read.
CREATE VIEW toril.line AS
SELECT queue, place, rank, key, coalesce(moved, rank) AS moved FROM toril.jobs j
WHERE place <> 0 OR (rank > -(1::bigint << 59) AND rank <= 0)
    OR rank > (SELECT s.head FROM toril.standing s WHERE s.queue = j.queue ORDER BY s.version DESC LIMIT 1);

CREATE VIEW toril.active AS
SELECT j.key, j.queue, l.deadline, l.token, l.worker, l.started_at, l.fence + j.rank - l.low AS fence, l.alone,
    l.max_stalls, j.cancelling
FROM toril.jobs j JOIN toril.leases l ON l.queue = j.queue AND j.rank BETWEEN l.low AND l.high WHERE j.place = 0;

CREATE TABLE toril.logs (
    key bigint NOT NULL,
    number bigint NOT NULL,
    line text NOT NULL,
    PRIMARY KEY (key, number)
);

-- Results of jobs that keep theirs for a time beyond their own.
CREATE TABLE toril.results (
    queue integer NOT NULL,
    id text COLLATE "C" NOT NULL,
    till bigint NOT NULL,
    cause text NOT NULL,
    text text NOT NULL,
    PRIMARY KEY (queue, id)
);

CREATE INDEX results_by_till ON toril.results (queue, till);

-- When a job that is kept for an age is due for removal. The job may be gone, or have run again, by then.
CREATE TABLE toril.ageing (
    queue integer NOT NULL,
    till bigint NOT NULL,
    key bigint NOT NULL,
    PRIMARY KEY (queue, till, key)
);

-- Starts within a sliding rate window.
CREATE TABLE toril.starts (
    queue integer NOT NULL,
    time bigint NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (queue, time)
);

-- Keys of which one job at a time is the owner: until `till`, or until it ends. `next` is a job to be added then.
CREATE TABLE toril.dedups (
    queue integer NOT NULL,
    id text COLLATE "C" NOT NULL,
    owner text NOT NULL,                    -- the job's id, which may be asked for when the job is gone
    key bigint NOT NULL,
    till bigint,
    next text,                              -- JSON
    PRIMARY KEY (queue, id)
);

CREATE INDEX dedups_by_key ON toril.dedups (key);
CREATE INDEX dedups_by_till ON toril.dedups (queue, till) WHERE till IS NOT NULL;

-- Recurring jobs. `run` is the key of the current run's job, which may have ended and be gone.
CREATE TABLE toril.schedules (
    queue integer NOT NULL,
    id text COLLATE "C" NOT NULL,
    slot bigint NOT NULL,                   -- the time of the current run
    run bigint,
    count bigint NOT NULL,                  -- runs made
    last bigint,                            -- the key of the run started last
    paused smallint NOT NULL DEFAULT 0,
    over smallint NOT NULL DEFAULT 0,       -- 1: limit or end is reached
    owner text NOT NULL,                    -- the app whose code declares it; '' if it was made at run time
    timing text NOT NULL,                   -- JSON
    template text NOT NULL,                 -- JSON
    PRIMARY KEY (queue, id)
);

CREATE INDEX schedules_by_slot ON toril.schedules (queue, slot);

-- Flows ------------------------------------------------------------------------------------------------------------

-- What a parent knows of its children. A job's own options say whose child it is, and whether it has children.
CREATE TABLE toril.children (
    parent bigint NOT NULL,                 -- the key of the job that has them
    standing smallint NOT NULL DEFAULT 0,   -- 0 open, 1 completed, 2 failed and ignored, 3 failed, and its parent too
    queue text COLLATE "C" NOT NULL,        -- by name: the queue itself may be obliterated. '' holds a parent back
    id text COLLATE "C" NOT NULL,
    text text,                              -- what it returned, or why it failed
    number bigint,                          -- the order in which children were added, and what the parent calls them
    name text,
    PRIMARY KEY (parent, standing, queue, id)
);

-- Parents that are held back because more children are on their way, and when to believe that none are.
CREATE TABLE toril.buildings (
    parent bigint PRIMARY KEY,
    queue integer NOT NULL,
    till bigint NOT NULL
);

CREATE INDEX buildings_by_till ON toril.buildings (queue, till);

-- Durable steps ----------------------------------------------------------------------------------------------------

-- What jobs recorded of their handlers. Those of a dead letter stand under keys below 0, as do the next two tables'.
CREATE TABLE toril.steps (
    job bigint NOT NULL,
    name text COLLATE "C" NOT NULL,         -- the stored key of the step
    seq bigint NOT NULL,                    -- the number of the record within the job
    row text NOT NULL,                      -- see codec/steps.py
    PRIMARY KEY (job, name)
);

CREATE INDEX steps_by_seq ON toril.steps (job, seq);

-- Each job that has recorded steps, was sent signals, or was run again by hand.
CREATE TABLE toril.recorded (
    job bigint PRIMARY KEY,
    seq bigint NOT NULL DEFAULT 0,          -- of its last record
    count bigint NOT NULL DEFAULT 0,        -- of its rows in `steps`, and the bytes of their names and texts
    bytes bigint NOT NULL DEFAULT 0,
    reruns bigint NOT NULL DEFAULT 0,       -- how often it was run again by hand, and is to do its steps anew
    epoch bigint NOT NULL DEFAULT 0
);

-- Signals to jobs. One that has been received is kept without its text, if it has an id, to know a second one by.
CREATE TABLE toril.signals (
    job bigint NOT NULL,
    number bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    word text COLLATE "C",                  -- the key that it was sent by; NULL: to the job itself
    id text COLLATE "C",
    at bigint NOT NULL,
    text text,
    PRIMARY KEY (job, number)
);

CREATE INDEX signals_by_id ON toril.signals (job, id) WHERE id IS NOT NULL;

-- Which job waits for signals by a key.
CREATE TABLE toril.awaited (
    queue integer NOT NULL,
    name text COLLATE "C" NOT NULL,
    word text COLLATE "C" NOT NULL,
    job bigint NOT NULL,
    PRIMARY KEY (queue, name, word)
);

CREATE INDEX awaited_by_job ON toril.awaited (job);

-- Signals by a key for which no job waits yet.
CREATE TABLE toril.kept_signals (
    queue integer NOT NULL,
    name text COLLATE "C" NOT NULL,
    word text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    id text COLLATE "C",
    at bigint NOT NULL,
    till bigint NOT NULL,
    size bigint NOT NULL,                   -- bytes of its text
    text text NOT NULL,
    PRIMARY KEY (queue, name, word, number)
);

CREATE INDEX kept_signals_by_till ON toril.kept_signals (queue, till, size);

-- Which signals were sent by a key, to know a second one by; also when they have been received. `number` is the order.
CREATE TABLE toril.sent_ids (
    queue integer NOT NULL,
    name text COLLATE "C" NOT NULL,
    word text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    till bigint NOT NULL,
    PRIMARY KEY (queue, name, word, id)
);

CREATE UNIQUE INDEX sent_ids_by_number ON toril.sent_ids (queue, number);
CREATE INDEX sent_ids_by_till ON toril.sent_ids (queue, till);

-- Jobs that rest, and why. Each stands delayed, or waiting for children.
CREATE TABLE toril.rests (
    job bigint PRIMARY KEY,
    queue integer NOT NULL,
    until bigint NOT NULL,
    children smallint NOT NULL,             -- 1: it rests for its children, perhaps among others
    text text NOT NULL                      -- JSON
);

CREATE INDEX rests_by_until ON toril.rests (queue, until, job);
CREATE INDEX rests_for_children ON toril.rests (queue, job) WHERE children = 1;

-- Groups -----------------------------------------------------------------------------------------------------------

CREATE TABLE toril.groups (
    queue integer NOT NULL,
    name text COLLATE "C" NOT NULL,
    limits text NOT NULL,                   -- its own
    paused smallint NOT NULL,
    PRIMARY KEY (queue, name)
);

-- Groups that have parked jobs and room, by their turn; or, where `till` is set, whose rate is used up until then.
CREATE TABLE toril.ring (
    queue integer NOT NULL,
    name text COLLATE "C" NOT NULL,
    till bigint NOT NULL,
    turn bigint NOT NULL,
    PRIMARY KEY (queue, name)
);

CREATE INDEX ring_by_turn ON toril.ring (queue, till, turn);

-- Starts within the window of a group's rate.
CREATE TABLE toril.group_starts (
    queue integer NOT NULL,
    name text COLLATE "C" NOT NULL,
    time bigint NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (queue, name, time)
);

CREATE INDEX group_starts_by_time ON toril.group_starts (queue, time);

-- What happened ----------------------------------------------------------------------------------------------------

-- One row for the events of one step and kind, or (without a kind) of one step on the hot path: of the jobs that it
-- added, each added and then waiting; or of those that it completed, then of those that it claimed. What the completed
-- ones returned is in `runs`.
CREATE TABLE toril.events (
    queue integer NOT NULL,
    last bigint NOT NULL,                   -- the number of the last of these events
    time bigint NOT NULL,
    size integer NOT NULL,
    kind text,
    jobs text,                              -- JSON: the job's id for each event
    details text,                           -- JSON: for each name the values, in the same order
    added bigint,                           -- the number of the first job added
    names text[],                           -- of the jobs added; one where all have the same
    completed bigint,                       -- the number of the last completed run
    active bigint[],                        -- the numbers of the jobs claimed
    active_ids text[],                      -- their ids, if any was chosen
    PRIMARY KEY (queue, last)
);

-- What is remembered of jobs that ended: one row for those of one step and ending. A list that is NULL has the usual
-- value for each job, and one of a single value has that one.
CREATE TABLE toril.runs (
    queue integer NOT NULL,
    ending smallint NOT NULL,
    last bigint NOT NULL,                   -- the number of the last of these runs
    size integer NOT NULL,
    finished_at bigint NOT NULL,
    counted smallint NOT NULL,              -- 1: its step has counted them for the metrics
    numbers bigint[],                       -- of the jobs
    ids text[],                             -- usually their numbers
    names text[] NOT NULL,
    causes text[],                          -- usually 'completed'
    added bigint[] NOT NULL,
    ready bigint[],                         -- since when they could start, usually since they were added; NULL for one
                                            -- that had started before
    started bigint[] NOT NULL,
    finished bigint[],                      -- usually `finished_at`
    made integer[],                         -- usually 1
    stalls integer[],                       -- usually 0
    workers text[] NOT NULL,
    texts text[],                           -- usually 'null'
    whole boolean[],                        -- usually true
    subjects text[],
    parents text[],
    PRIMARY KEY (queue, ending, last)
);

ALTER TABLE toril.runs ALTER numbers SET STORAGE EXTERNAL, ALTER ids SET STORAGE EXTERNAL, ALTER added SET STORAGE EXTERNAL,
    ALTER texts SET STORAGE EXTERNAL;
ALTER TABLE toril.events ALTER active SET STORAGE EXTERNAL;

CREATE TABLE toril.minutes (
    queue integer NOT NULL,
    minute bigint NOT NULL,
    completed bigint NOT NULL,
    failed bigint NOT NULL,
    PRIMARY KEY (queue, minute)
) WITH (fillfactor = 50);

-- What is counted beside completed and failed jobs: how long they waited and ran, which names failed, stalls, retries.
-- The queue's own row has the minute under way; what is over is added to slices of 1, 3, 6 and 42 minutes, and to the
-- sum of all, which is the slice 0 of 0 minutes. Each is JSON: see `policy.metrics`.
CREATE TABLE toril.slices (
    queue integer NOT NULL,
    step integer NOT NULL,
    slice bigint NOT NULL,
    counted text NOT NULL,
    PRIMARY KEY (queue, step, slice)
) WITH (fillfactor = 50);

-- What is left of jobs that failed for good. A dead letter is written by the step that deletes its job, and deleted by
-- the one that stores the job again. Its children and its log stand under keys below 0: the job's number may be used
-- again.
CREATE TABLE toril.letters (
    id text COLLATE "C" PRIMARY KEY,        -- made of queue and job
    queue text NOT NULL,                    -- by name: the queue itself may be obliterated
    job text NOT NULL,
    name text NOT NULL,
    cause text NOT NULL,
    failed_at bigint NOT NULL,
    attempts integer NOT NULL,
    attempts_made integer NOT NULL,
    stalls integer NOT NULL,
    priority integer NOT NULL,
    added_at bigint NOT NULL,
    started_at bigint,
    worker text,
    options text,
    metadata text,
    checkpoint text,
    stall_cause text,
    failure text NOT NULL,
    data text NOT NULL,
    grp text,
    kin bigint,                             -- the key of its children
    errors text,
    progress text,
    log bigint,                             -- the key of its log lines
    recorded bigint                         -- the key of its steps and signals
);

CREATE INDEX letters_by_time ON toril.letters (failed_at, id);

CREATE FUNCTION toril.forget_steps_of_letter() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM toril.steps WHERE job = old.recorded;
    DELETE FROM toril.recorded WHERE job = old.recorded;
    DELETE FROM toril.signals WHERE job = old.recorded;
    RETURN NULL;
END $$;

CREATE TRIGGER steps_of_letters AFTER DELETE ON toril.letters FOR EACH ROW WHEN (old.recorded IS NOT NULL)
EXECUTE FUNCTION toril.forget_steps_of_letter();

-- Who has changed what over HTTP. The oldest go when there are too many.
CREATE TABLE toril.audit (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    entry text NOT NULL                     -- JSON
);

-- Workers ----------------------------------------------------------------------------------------------------------

CREATE TABLE toril.workers (
    id text COLLATE "C" PRIMARY KEY,
    till bigint NOT NULL,
    seen_at bigint NOT NULL,
    orders text NOT NULL DEFAULT '',
    beat text NOT NULL                      -- JSON
) WITH (fillfactor = 50);

-- What the code of each worker says of its queues. It goes with the worker.
CREATE TABLE toril.declared (
    queue text COLLATE "C" NOT NULL,
    worker text COLLATE "C" NOT NULL REFERENCES toril.workers (id) ON DELETE CASCADE,
    at bigint NOT NULL,
    text text NOT NULL,                     -- JSON: see `Declaration.dump`
    PRIMARY KEY (queue, worker)
);

CREATE INDEX declared_by_worker ON toril.declared (worker);

-- How often each worker was called to listen.
CREATE TABLE toril.pokes (
    worker text COLLATE "C" PRIMARY KEY,
    count bigint NOT NULL,
    time bigint NOT NULL
);

CREATE INDEX pokes_by_time ON toril.pokes (time);

CREATE TABLE toril.leaders (
    role text COLLATE "C" PRIMARY KEY,
    owner text NOT NULL,
    till bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE toril.onces (
    key text COLLATE "C" PRIMARY KEY,
    owner text NOT NULL,
    till bigint NOT NULL
);

CREATE INDEX onces_by_till ON toril.onces (till);

-- The last answer to each sender, for a call that is sent again. The newest epoch holds: it is updated in place for 64
-- calls, then written anew, for the same reason as `standing`.
CREATE TABLE toril.calls (
    sender text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL,
    seq bigint NOT NULL,
    time bigint NOT NULL,
    answer text,
    PRIMARY KEY (sender, epoch)
) WITH (
    fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0
);

-- The whole store --------------------------------------------------------------------------------------------------

-- Its settings, as JSON; and the version of this layout.
CREATE TABLE toril.facts (
    name text COLLATE "C" PRIMARY KEY,
    value text NOT NULL
);

-- Circuit breakers by their keys.
CREATE TABLE toril.circuits (
    key text COLLATE "C" PRIMARY KEY,
    circuit text NOT NULL                   -- JSON
);

-- A transfer to another store: what has left its place and is not known to have arrived yet. `facts` has the batch's
-- number, its mark, and whom it is for, and for each store that sent something here the number of the last batch.
CREATE TABLE toril.van (
    position bigint PRIMARY KEY,
    parcel text NOT NULL                    -- JSON: what it is, and rows as they were
);

-- Queues that leave for another store, and whether they were paused before that.
CREATE TABLE toril.departures (
    queue integer PRIMARY KEY,
    target text NOT NULL,
    paused smallint NOT NULL
);

-- Schedules that have left. Workers that are still here declare them again.
CREATE TABLE toril.departed (
    queue integer NOT NULL,
    schedule text COLLATE "C" NOT NULL,
    PRIMARY KEY (queue, schedule)
);
