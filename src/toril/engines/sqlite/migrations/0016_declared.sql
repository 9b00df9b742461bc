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
