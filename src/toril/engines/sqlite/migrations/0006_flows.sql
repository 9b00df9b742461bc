-- Flows. A job's own options say whose child it is, and whether it has children; here stands what a parent knows of them.

CREATE TABLE children (
    parent INTEGER NOT NULL,                -- the key of the job that has them
    standing INTEGER NOT NULL DEFAULT 0,    -- 0 open, 1 completed, 2 failed and passed over, 3 failed, and its parent too
    queue TEXT NOT NULL,                    -- by name: the queue itself may be obliterated. '' holds a parent back
    id TEXT NOT NULL,
    text TEXT,                              -- what it returned, or why it failed
    PRIMARY KEY (parent, standing, queue, id)
) STRICT, WITHOUT ROWID;

-- Parents that are held back because more children are on their way, and when to believe that none are.
CREATE TABLE buildings (
    parent INTEGER PRIMARY KEY,
    queue INTEGER NOT NULL,
    till INTEGER NOT NULL
) STRICT;

CREATE INDEX buildings_by_till ON buildings (queue, till);

-- 1: there have been parents or children in the queue, so whoever removes jobs has to look for them.
ALTER TABLE queues ADD COLUMN flows INTEGER NOT NULL DEFAULT 0;
