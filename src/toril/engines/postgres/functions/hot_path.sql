-- Adding, settling and claiming usual jobs, each in one call. Whatever else there is to do raises TL000 before anything is
-- written, and is made over a transaction by the code that all SQL engines share. Both roads write the same rows.
--
-- Each statement touches one table by one index, and `+ 0` keeps other indexes out: so its plan does not depend on what
-- the statistics say, however many dead rows there are.

-- Who had to wait for a queue lets others wait less: it commits without waiting for the disk, gives the lock away, and
-- flushes then in a statement of its own. So does a call that is sent again, as the first may have been cut off before.

CREATE OR REPLACE FUNCTION toril.add_usual(
    q integer, p_names text[], p_data text[], p_attempts integer[], p_expires bigint[], p_options text[], p_metadata text[],
    p_sender text, p_seq bigint, p_now bigint, OUT base bigint, OUT unflushed boolean
) LANGUAGE plpgsql AS $$
DECLARE
    s toril.standing; c toril.calls; most bigint; n integer := cardinality(p_data); alike boolean := cardinality(p_names) = 1;
    t bigint; named text; began timestamptz := clock_timestamp();
BEGIN
    SELECT coalesce(max_waiting, 1::bigint << 62), name INTO most, named FROM toril.queues WHERE key = q FOR NO KEY UPDATE;
    IF most IS NULL THEN
        RAISE EXCEPTION 'there is no such queue' USING ERRCODE = 'TL003';
    END IF;
    unflushed := clock_timestamp() - began > interval '300 microseconds';
    t := coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
    IF p_sender IS NOT NULL THEN
        SELECT * INTO c FROM toril.calls WHERE sender = p_sender ORDER BY epoch DESC LIMIT 1;
        IF c.seq = p_seq AND c.answer ~ '^\[[0-9]+, [0-9]+\]$' THEN
            base := (c.answer::json ->> 0)::bigint - n;
            unflushed := true;
            RETURN;
        ELSIF c.seq >= p_seq THEN
            RAISE EXCEPTION 'the call was answered before' USING ERRCODE = 'TL000';
        END IF;
    END IF;
    SELECT * INTO s FROM toril.standing WHERE queue = q ORDER BY version DESC LIMIT 1;
    IF s.waiting + s.suspects + s.prioritized + s.delayed + s.parked + n > most THEN
        RAISE EXCEPTION 'the queue is full' USING ERRCODE = 'TL000';
    END IF;
    base := s.last_number;
    IF s.awaited = 1 THEN
        unflushed := true;  -- NOTIFY has a lock of its own, which is held up to the end of the commit
        PERFORM pg_notify('toril.jobs', named);
    END IF;
    IF unflushed THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    ELSIF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    INSERT INTO toril.jobs (key, place, rank, added_at, attempts, expires_at, name, options, metadata, data)
    SELECT (q::bigint << 40) + base + u.n, 0, s.moves + u.n, t,
        CASE WHEN alike THEN p_attempts[1] ELSE p_attempts[u.n] END,
        t + CASE WHEN alike THEN p_expires[1] ELSE p_expires[u.n] END,
        CASE WHEN alike THEN p_names[1] ELSE p_names[u.n] END, CASE WHEN alike THEN p_options[1] ELSE p_options[u.n] END,
        CASE WHEN alike THEN p_metadata[1] ELSE p_metadata[u.n] END, u.data
    FROM unnest(p_data) WITH ORDINALITY u(data, n);
    INSERT INTO toril.events (queue, last, time, size, added, names) VALUES (q, s.events + 2 * n, t, 2 * n, base + 1, p_names);
    s.step := s.step + 1;
    s.last_number := base + n;
    s.moves := s.moves + n;
    s.waiting := s.waiting + n;
    s.arrivals := s.arrivals + 1;
    s.events := s.events + 2 * n;
    s.awaited := 0;
    IF s.events > 10000 AND s.events / 1000 <> (s.events - 2 * n) / 1000 THEN
        s := toril.trim_usual(s);
    END IF;
    IF s.step & 63 <> 0 THEN
        UPDATE toril.standing SET step = s.step, last_number = s.last_number, moves = s.moves, waiting = s.waiting,
            arrivals = s.arrivals, events = s.events, folded = s.folded, awaited = 0
        WHERE queue = q AND version = s.version;
    ELSE
        DELETE FROM toril.standing WHERE queue = q AND version = s.version;
        s.version := s.version + 1;
        INSERT INTO toril.standing VALUES (s.*);
    END IF;
    IF p_sender IS NOT NULL THEN
        PERFORM toril.remember(p_sender, p_seq, (t / 60000 + 1) * 60000, format('[%s, %s]', base + n, n));
    END IF;
END $$;

-- Settles jobs that have completed, then claims up to `p_want`. The keys, and the results as run records show them, are in
-- the order of the tokens, of which each has so many. `refused` says of settlements by their places whether the lease was
-- lost (1) or the job is gone (2).
CREATE OR REPLACE FUNCTION toril.exchange_usual(
    q integer, p_tokens text[], p_counts integer[], p_keys bigint[], p_texts text[], p_whole boolean[], p_want integer,
    p_token text, p_lease bigint, p_worker text, p_alone boolean, p_max_stalls integer, p_sender text, p_seq bigint,
    p_now bigint,
    OUT now bigint, OUT wake_at bigint, OUT gate text, OUT suspects bigint, OUT refused text, OUT arrivals bigint,
    OUT claimed integer, OUT freed boolean, OUT unflushed boolean
) LANGUAGE plpgsql AS $$
DECLARE
    numbering CONSTANT bigint := (1::bigint << 40) - 1;
    qr toril.queues; s toril.standing; c toril.calls; l toril.leases; began timestamptz := clock_timestamp();
    given integer := cardinality(p_keys); n integer := 0; got integer; from_ integer := 1; till integer; ks bigint[];
    places integer[]; settled integer[]; numbers bigint[]; names text[]; added bigint[]; ready bigint[]; made integer[];
    stalls integer[]; started bigint[]; workers text[]; texts text[]; whole boolean[];
    r_numbers bigint[]; r_names text[]; r_added bigint[]; r_ready bigint[]; r_made integer[]; r_stalls integer[];
    room integer := p_want; high bigint; low bigint; act bigint[]; act_ids text[]; odd boolean; chosen boolean; ended boolean;
    before bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a step needs the isolation level read committed' USING ERRCODE = 'TL004';
    END IF;
    SELECT * INTO qr FROM toril.queues WHERE key = q FOR NO KEY UPDATE;
    IF qr.key IS NULL THEN
        RAISE EXCEPTION 'there is no such queue' USING ERRCODE = 'TL003';
    END IF;
    IF qr.grouped + qr.stepping > 0 OR qr.rate IS NOT NULL THEN
        RAISE EXCEPTION 'an unusual queue' USING ERRCODE = 'TL000';
    END IF;
    unflushed := clock_timestamp() - began > interval '300 microseconds';
    now := coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
    claimed := 0;
    freed := false;
    IF p_sender IS NOT NULL THEN
        SELECT * INTO c FROM toril.calls WHERE sender = p_sender ORDER BY epoch DESC LIMIT 1;
        IF c.seq = p_seq AND starts_with(c.answer, '{') THEN
            SELECT a.now, a.wake_at, a.gate, a.suspects, a.refused INTO now, wake_at, gate, suspects, refused
            FROM json_to_record(c.answer::json) a(now bigint, wake_at bigint, gate text, suspects bigint, refused text);
            unflushed := true;
            RETURN;
        ELSIF c.seq >= p_seq THEN
            RAISE EXCEPTION 'the call was answered before' USING ERRCODE = 'TL000';
        END IF;
    END IF;
    SELECT * INTO s FROM toril.standing WHERE queue = q ORDER BY version DESC LIMIT 1;
    IF p_want > 0 AND (s.parked > 0 OR s.held_till > now OR s.fronts > s.fronts_taken OR (s.suspects > 0 AND p_alone)
        OR (s.prioritized > 0 AND s.waiting < p_want)) THEN
        IF s.fronts > s.fronts_taken AND NOT EXISTS (
            SELECT 1 FROM toril.jobs WHERE queue = q AND place = 0 AND rank > -(1::bigint << 59) AND rank <= 0) THEN
            s.fronts_taken := s.fronts;
        END IF;
        IF s.parked > 0 OR s.held_till > now OR s.fronts > s.fronts_taken OR (s.suspects > 0 AND p_alone)
            OR s.prioritized > 0 THEN
            RAISE EXCEPTION 'not only the usual line' USING ERRCODE = 'TL000';
        END IF;
    END IF;
    IF p_want > 0 AND s.delayed > 0 THEN
        SELECT rank >> 20 INTO wake_at FROM toril.jobs WHERE queue = q AND place = 3 ORDER BY rank LIMIT 1;
        IF wake_at <= now THEN
            RAISE EXCEPTION 'jobs are due' USING ERRCODE = 'TL000';
        END IF;
    END IF;

    FOR i IN 1 .. coalesce(cardinality(p_tokens), 0) LOOP
        till := from_ + p_counts[i] - 1;
        ks := p_keys[from_ : till];
        FOR l IN SELECT * FROM toril.leases WHERE queue = q AND token = p_tokens[i] AND deadline + 0 > now LOOP
            WITH gone AS (
                DELETE FROM toril.jobs j
                WHERE j.key = ANY(ks) AND j.place + 0 = 0 AND j.rank + 0 BETWEEN l.low AND l.high AND j.id IS NULL
                    AND j.logs = 0 AND (j.options IS NULL OR j.options !~
                        '"(keep_completed|result_ttl|dedup|parent|parked|deferred|ready|subject)"')
                RETURNING j.key, j.name, j.added_at, j.delay, j.attempts_made, j.stalls, j.starts
            )
            SELECT count(*), array_agg(from_ + at - 1), array_agg(key & numbering), array_agg(name), array_agg(added_at),
                array_agg(CASE WHEN starts = 0 THEN added_at + delay END), array_agg(attempts_made + 1), array_agg(g.stalls)
            INTO got, places, r_numbers, r_names, r_added, r_ready, r_made, r_stalls
            FROM (SELECT gone.*, array_position(ks, key) AS at FROM gone ORDER BY at OFFSET 0) g;
            IF got > 0 THEN
                IF got >= l.open THEN
                    DELETE FROM toril.leases WHERE queue = q AND token = l.token AND leases.low = l.low;
                ELSE
                    UPDATE toril.leases SET open = l.open - got WHERE queue = q AND token = l.token AND leases.low = l.low;
                END IF;
                n := n + got;
                settled := settled || places;
                numbers := numbers || r_numbers;
                names := names || r_names;
                added := added || r_added;
                ready := ready || r_ready;
                made := made || r_made;
                stalls := stalls || r_stalls;
                started := started || array_fill(l.started_at, ARRAY[got]);
                workers := workers || array_fill(l.worker, ARRAY[got]);
            END IF;
        END LOOP;
        from_ := till + 1;
    END LOOP;
    IF n < given THEN
        IF EXISTS (SELECT 1 FROM toril.jobs j WHERE j.key = ANY(p_keys) AND j.place + 0 = 0 AND EXISTS (
            SELECT 1 FROM toril.leases h WHERE h.queue = q AND h.token = ANY(p_tokens) AND h.deadline + 0 > now
                AND j.rank BETWEEN h.low AND h.high)) THEN
            RAISE EXCEPTION 'an unusual job has completed' USING ERRCODE = 'TL000';
        END IF;
        SELECT string_agg(u.n || ':' || CASE WHEN EXISTS (SELECT 1 FROM toril.jobs j WHERE j.key = u.key AND j.id IS NULL)
            THEN 1 ELSE 2 END, ',') INTO refused
        FROM unnest(p_keys) WITH ORDINALITY u(key, n) WHERE settled IS NULL OR u.n <> ALL(settled);
    END IF;
    IF n > 0 THEN
        SELECT array_agg(p_texts[at]), array_agg(p_whole[at]) INTO texts, whole FROM unnest(settled) at;
        s.completed_total := s.completed_total + n;
        s.active := s.active - n;
        IF 'null' = ALL(texts) THEN texts := NULL; END IF;
        IF true = ALL(whole) THEN whole := NULL; END IF;
        IF ready = added THEN ready := NULL; END IF;
        IF 1 = ALL(made) THEN made := NULL; END IF;
        IF 0 = ALL(stalls) THEN stalls := NULL; END IF;
        IF names[1] = ALL(names) THEN names := names[1:1]; END IF;
        IF started[1] = ALL(started) THEN started := started[1:1]; END IF;
        IF workers[1] = ALL(workers) THEN workers := workers[1:1]; END IF;
        INSERT INTO toril.runs (queue, ending, last, size, finished_at, counted, numbers, names, added, ready, started, made,
            stalls, workers, texts, whole)
        VALUES (q, 0, s.completed_total, n, now, 0, numbers, names, added, ready, started, made, stalls, workers, texts, whole);
        IF qr.results_awaited_till > extract(epoch FROM clock_timestamp()) * 1000 THEN
            PERFORM pg_notify('toril.jobs', '=' || qr.name);
            unflushed := true;
        END IF;
        IF qr.concurrency IS NOT NULL THEN
            freed := true;  -- slots of the whole fleet
            s.arrivals := s.arrivals + 1;
            IF s.awaited = 1 THEN
                PERFORM pg_notify('toril.jobs', qr.name);
                s.awaited := 0;
                unflushed := true;
            END IF;
        END IF;
    END IF;

    IF p_want > 0 THEN
        IF qr.paused = 1 THEN
            room := 0;
            gate := 'paused';
        ELSIF qr.concurrency - s.active < room THEN
            room := greatest(0, qr.concurrency - s.active);
            gate := 'concurrency';
        END IF;
        IF room > 0 AND s.waiting > 0 THEN
            SELECT max(f.rank), min(f.rank), count(*), array_agg(f.key & numbering), bool_or(f.id IS NOT NULL),
                array_agg(f.id), bool_or(f.expires_at <= exchange_usual.now)
                    OR bool_or(f.options NOT LIKE '{%}') OR (qr.flows = 1 AND bool_or(f.options ~ '"deferred"'))
            INTO high, low, claimed, act, chosen, act_ids, odd
            FROM (SELECT rank, key, id, expires_at, options FROM toril.jobs
                WHERE queue = q AND place = 0 AND rank > s.head ORDER BY rank LIMIT room) f;
            IF odd THEN
                RAISE EXCEPTION 'an unusual job is next' USING ERRCODE = 'TL000';
            END IF;
        END IF;
        IF claimed > 0 THEN
            IF high - low + 1 = claimed THEN
                INSERT INTO toril.leases (queue, token, low, high, open, max_stalls, alone, fence, started_at, deadline, worker)
                VALUES (q, p_token, low, high, claimed, p_max_stalls, 0, s.claims + 1, now, now + p_lease, p_worker);
            ELSE  -- one for each stretch without a gap, so that fences have none either
                INSERT INTO toril.leases (queue, token, low, high, open, max_stalls, alone, fence, started_at, deadline, worker)
                SELECT q, p_token, min(f.rank), max(f.rank), count(*), p_max_stalls, 0, s.claims + min(f.at),
                    exchange_usual.now, exchange_usual.now + p_lease, p_worker
                FROM (SELECT rank, row_number() OVER (ORDER BY rank) AS at FROM toril.jobs
                    WHERE queue = q AND place = 0 AND rank > s.head AND rank <= high) f
                GROUP BY f.rank - f.at;
            END IF;
            s.claims := s.claims + claimed;
            s.head := high;
            s.active := s.active + claimed;
            s.waiting := s.waiting - claimed;
        END IF;
        IF claimed = p_want THEN
            gate := NULL;
            wake_at := NULL;
        ELSIF claimed = room AND gate IS NOT NULL THEN
            wake_at := NULL;
        ELSE
            gate := NULL;
        END IF;
    END IF;
    suspects := s.suspects;
    ended := n > 0 AND s.waiting + s.suspects + s.prioritized + s.active + s.delayed + s.parked = 0;
    IF p_want = 0 THEN
        suspects := 0;
    END IF;

    IF n + claimed > 0 THEN
        before := s.events;
        s.events := s.events + n + claimed;
        INSERT INTO toril.events (queue, last, time, size, completed, active, active_ids)
        VALUES (q, s.events, now, n + claimed, CASE WHEN n > 0 THEN s.completed_total END, act, CASE WHEN chosen THEN act_ids END);
        IF ended THEN
            s.events := s.events + 1;
            INSERT INTO toril.events (queue, last, time, size, kind, jobs) VALUES (q, s.events, now, 1, 'drained', '[null]');
        END IF;
        IF s.events > 10000 AND s.events / 1000 <> before / 1000 THEN
            s := toril.trim_usual(s);
        END IF;
    END IF;
    IF n + claimed > 0 OR (claimed < p_want AND s.awaited = 0) THEN
        IF claimed < p_want THEN
            s.awaited := 1;
        END IF;
        s.step := s.step + 1;
        IF s.step & 63 <> 0 THEN
            UPDATE toril.standing SET step = s.step, head = s.head, fronts_taken = s.fronts_taken, arrivals = s.arrivals,
                claims = s.claims, waiting = s.waiting, active = s.active, completed_total = s.completed_total,
                events = s.events, folded = s.folded, awaited = s.awaited
            WHERE queue = q AND version = s.version;
        ELSE
            DELETE FROM toril.standing WHERE queue = q AND version = s.version;
            s.version := s.version + 1;
            INSERT INTO toril.standing VALUES (s.*);
        END IF;
    END IF;
    arrivals := s.arrivals;
    IF p_sender IS NOT NULL THEN
        PERFORM toril.remember(p_sender, p_seq, (now / 60000 + 1) * 60000, json_build_object(
            'now', now, 'wake_at', wake_at, 'gate', gate, 'suspects', suspects, 'refused', refused)::text);
    END IF;
    IF unflushed THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    ELSIF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

-- Put what completed runs add to the metrics where it is kept, and delete events and run records that are too old.
CREATE OR REPLACE FUNCTION toril.trim_usual(s toril.standing) RETURNS toril.standing LANGUAGE plpgsql AS $$
DECLARE needed bigint;
BEGIN
    DELETE FROM toril.events WHERE queue = s.queue AND last <= s.events - 10000;
    IF s.completed_total - s.folded < 2000 THEN
        RETURN s;
    END IF;
    INSERT INTO toril.minutes (queue, minute, completed, failed)
    SELECT s.queue, r.finished_at / 60000, sum(r.size), 0 FROM toril.runs r
    WHERE r.queue = s.queue AND r.ending = 0 AND r.counted = 0 AND r.last > s.folded GROUP BY 2
    ON CONFLICT (queue, minute) DO UPDATE SET completed = minutes.completed + excluded.completed;
    INSERT INTO toril.slices (queue, step, slice, counted)
    SELECT s.queue, f.step, f.slice, json_object_agg(f.field, f.count)::text FROM (
        SELECT l.step, CASE l.step WHEN 0 THEN 0 ELSE u.minute / l.step END AS slice, u.field, sum(u.count)::bigint AS count
        FROM toril.unfolded(s.queue) u, unnest(ARRAY[0, 1, 3, 6, 42]) l(step) GROUP BY 1, 2, 3
    ) f GROUP BY f.step, f.slice
    ON CONFLICT (queue, step, slice) DO UPDATE SET counted = toril.added_up(slices.counted, excluded.counted);
    s.folded := s.completed_total;
    SELECT min(completed) INTO needed FROM toril.events WHERE queue = s.queue AND completed IS NOT NULL;
    DELETE FROM toril.runs WHERE queue = s.queue AND ending = 0
        AND last < least(s.completed_total - 1000, coalesce(needed, s.completed_total));
    RETURN s;
END $$;

CREATE OR REPLACE FUNCTION toril.added_up(one text, other text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT json_object_agg(key, count)::text FROM (
        SELECT key, sum(value::bigint)::bigint AS count
        FROM (SELECT * FROM json_each_text(one::json) UNION ALL SELECT * FROM json_each_text(other::json)) e GROUP BY key
    ) f
$$;

-- The jobs that a token holds: those of its claim, at first and when the call is sent again. Read after the commit of the
-- claim, so that nothing is locked while the answer is on its way.
CREATE OR REPLACE FUNCTION toril.claimed_by(q integer, p_token text, p_now bigint)
RETURNS TABLE (key bigint, fence bigint, name text, added_at bigint, attempts integer, data text, more text)
LANGUAGE plpgsql AS $$
DECLARE l toril.leases; t bigint := coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
BEGIN
    FOR l IN SELECT * FROM toril.leases WHERE queue = q AND token = p_token AND deadline + 0 > t ORDER BY low LOOP
        RETURN QUERY SELECT j.key, l.fence + j.rank - l.low, j.name, j.added_at, j.attempts, j.data,
            CASE WHEN j.id IS NOT NULL OR j.starts > 0 OR j.attempts_made > 0 OR j.stalls > 0 OR j.delay <> 0
                OR j.priority <> 0 OR l.alone = 1 OR j.options IS NOT NULL OR j.metadata IS NOT NULL OR j.checkpoint IS NOT NULL
            THEN json_build_array(j.id, j.starts, j.attempts_made, j.stalls, j.delay, j.priority, l.alone, j.options, j.metadata,
                j.checkpoint)::text END
        FROM toril.jobs j WHERE j.queue = q AND j.place = 0 AND j.rank BETWEEN l.low AND l.high ORDER BY j.rank;
    END LOOP;
END $$;

-- Plans that do not depend on statistics, and no wait without an end.
ALTER FUNCTION toril.add_usual SET plan_cache_mode = force_generic_plan;
ALTER FUNCTION toril.add_usual SET lock_timeout = '5s';
ALTER FUNCTION toril.exchange_usual SET plan_cache_mode = force_generic_plan;
ALTER FUNCTION toril.exchange_usual SET enable_seqscan = off;
ALTER FUNCTION toril.exchange_usual SET enable_bitmapscan = off;
ALTER FUNCTION toril.exchange_usual SET lock_timeout = '5s';
ALTER FUNCTION toril.claimed_by SET plan_cache_mode = force_generic_plan;
ALTER FUNCTION toril.claimed_by SET enable_seqscan = off;
ALTER FUNCTION toril.claimed_by SET enable_bitmapscan = off;
