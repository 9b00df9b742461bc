-- Moving to another store. What has left its place and is not known to have arrived yet is in the van; `facts` has the
-- load's number, its mark, and whom it is for, and for each store that sent something here the number of the last load.

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
