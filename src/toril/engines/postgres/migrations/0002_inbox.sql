-- Jobs that other programs have added in transactions of their own. Who serves the queue takes them from here.
CREATE TABLE toril.inbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text COLLATE "C" NOT NULL,
    job_id text NOT NULL,
    request text NOT NULL,                  -- JSON: see codec/new_jobs.py
    added_at bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    error text                              -- why the job can never be added
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX inbox_by_queue ON toril.inbox (queue, id) WHERE error IS NULL;
