-- Groups: jobs that share a name and take turns with those of other names. Such a job waits parked until it is let into
-- the line. Those of a group in the line, or running, have its seats; so has, where only one runs at a time, a job that
-- was put off after it had started. Nothing is counted but these rows.

ALTER TABLE jobs ADD COLUMN grp TEXT;
ALTER TABLE jobs ADD COLUMN ord INTEGER NOT NULL DEFAULT 0;     -- within the group: smaller goes first
ALTER TABLE letters ADD COLUMN grp TEXT;
ALTER TABLE queues ADD COLUMN parked INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queues ADD COLUMN grouped INTEGER NOT NULL DEFAULT 0; -- 1 once a job had a group
ALTER TABLE queues ADD COLUMN orders INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queues ADD COLUMN turns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queues ADD COLUMN groups_set TEXT;                  -- limits of each group, by hand and by the code
ALTER TABLE queues ADD COLUMN groups_declared TEXT;

CREATE INDEX jobs_by_group ON jobs (key >> 40, grp, place, priority, ord) WHERE grp IS NOT NULL;
CREATE INDEX jobs_put_off ON jobs (key >> 40, grp) WHERE grp IS NOT NULL AND place = 3 AND starts > 0;

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
