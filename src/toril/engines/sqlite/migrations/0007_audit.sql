-- Who has changed what over HTTP. The oldest go when there are too many.
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    entry TEXT NOT NULL                     -- JSON
) STRICT;
