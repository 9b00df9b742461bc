-- The product's own tables. Every process that opens the database creates them if necessary.

CREATE TABLE IF NOT EXISTS mailboxes (
    id         TEXT PRIMARY KEY,
    stage      TEXT NOT NULL DEFAULT 'idle',  -- see mailboxes.py
    since      REAL NOT NULL DEFAULT 0,       -- when the stage began
    queued     REAL NOT NULL DEFAULT 0,       -- when a job was last added
    holder     TEXT,                          -- the job that works on it,
    fence      INTEGER NOT NULL DEFAULT 0,    -- and which start of it
    auth       TEXT NOT NULL DEFAULT 'ok',
    failures   INTEGER NOT NULL DEFAULT 0,
    retry_at   REAL NOT NULL DEFAULT 0,
    relaunches INTEGER NOT NULL DEFAULT 0,
    synced     REAL NOT NULL DEFAULT 0
) STRICT;

-- Messages that are known and not imported yet, with the job that works on them.
CREATE TABLE IF NOT EXISTS to_import (
    mailbox TEXT NOT NULL,
    message TEXT NOT NULL,
    job     TEXT,
    PRIMARY KEY (mailbox, message)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS messages (
    mailbox TEXT NOT NULL,
    message TEXT NOT NULL,
    subject TEXT NOT NULL,
    PRIMARY KEY (mailbox, message)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS credentials (
    id       TEXT PRIMARY KEY,
    provider TEXT NOT NULL,
    token    TEXT,
    expires  REAL NOT NULL DEFAULT 0,
    auth     TEXT NOT NULL DEFAULT 'ok'
) STRICT;

CREATE TABLE IF NOT EXISTS documents (
    id     TEXT PRIMARY KEY,
    text   TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'uploaded',  -- embedding, ready, failed
    since  REAL NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE IF NOT EXISTS segments (
    document TEXT NOT NULL,
    number   INTEGER NOT NULL,
    text     TEXT NOT NULL,
    vector   TEXT,
    PRIMARY KEY (document, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS events (
    job    TEXT PRIMARY KEY,
    kind   TEXT NOT NULL,
    ticket INTEGER NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS contacts (
    id    INTEGER PRIMARY KEY,
    email TEXT NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS workflows (
    id      TEXT PRIMARY KEY,
    enabled INTEGER NOT NULL DEFAULT 1,
    due     REAL NOT NULL DEFAULT 0
) STRICT;

-- Whatever is deleted after a while: files, media, thumbnails, bundles, demo accounts.
CREATE TABLE IF NOT EXISTS leftovers (
    id      INTEGER PRIMARY KEY,
    kind    TEXT NOT NULL,
    expires REAL NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS alerts (
    at    REAL NOT NULL,
    kind  TEXT NOT NULL,
    queue TEXT,
    text  TEXT NOT NULL
) STRICT;
