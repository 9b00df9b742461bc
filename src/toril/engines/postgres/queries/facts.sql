-- What the doctor asks the server.

-- name: clock
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: facts
SELECT current_setting('server_version'), pg_is_in_recovery(), current_setting('fsync')::boolean,
    current_setting('synchronous_commit'),
    coalesce((SELECT max(extract(epoch FROM clock_timestamp() - xact_start) * 1000) FROM pg_stat_activity
        WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()), 0)::bigint,
    coalesce(sum(n_dead_tup), 0)::bigint, coalesce(sum(n_live_tup), 0)::bigint
FROM pg_stat_user_tables WHERE schemaname = $1
