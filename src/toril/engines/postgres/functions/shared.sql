-- What the statements of `queries` call.

-- The texts of a JSON array. What has a NUL is nobody's id: there is no such text here.
CREATE OR REPLACE FUNCTION toril.texts(p_list text) RETURNS SETOF text LANGUAGE sql IMMUTABLE AS $$
    SELECT json_array_elements_text(CASE WHEN strpos(p_list, '\u0000') = 0 THEN p_list
        ELSE regexp_replace(p_list, '(?<!\\)((?:\\\\)*)\\u0000', '\1\ufffd', 'g') END::json)
$$;

CREATE OR REPLACE FUNCTION toril.create_queue(p_name text) RETURNS void LANGUAGE sql AS $$
    WITH made AS (INSERT INTO toril.queues (name) VALUES (p_name) ON CONFLICT (name) DO NOTHING RETURNING key)
    INSERT INTO toril.standing (queue, version) SELECT key, 1 FROM made
$$;

CREATE OR REPLACE FUNCTION toril.delete_queue(q integer) RETURNS void LANGUAGE sql AS $$
    DELETE FROM toril.leases WHERE queue = q;
    DELETE FROM toril.standing WHERE queue = q;
    DELETE FROM toril.queues WHERE key = q
$$;

-- The row of a queue for who is going to change it. What waits here sees what those before it have committed.
CREATE OR REPLACE FUNCTION toril.lock_queue(p_name text) RETURNS void LANGUAGE sql AS $$
    SELECT 1 FROM toril.queues WHERE name = p_name FOR NO KEY UPDATE
$$;

-- Write a queue's counters: in place, or from time to time as a new version.
CREATE OR REPLACE FUNCTION toril.put_standing(s toril.standing) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    s.step := s.step + 1;
    IF s.step & 63 <> 0 THEN
        UPDATE toril.standing SET step = s.step, last_number = s.last_number, moves = s.moves, fronts = s.fronts,
            fronts_taken = s.fronts_taken, head = s.head, arrivals = s.arrivals, claims = s.claims, waiting = s.waiting,
            suspects = s.suspects, prioritized = s.prioritized, active = s.active, delayed = s.delayed,
            waiting_children = s.waiting_children, completed = s.completed, failed = s.failed,
            completed_total = s.completed_total, failed_total = s.failed_total, cancelled_total = s.cancelled_total,
            events = s.events, window_till = s.window_till, window_starts = s.window_starts, held_till = s.held_till,
            parked = s.parked, orders = s.orders, turns = s.turns, figures = s.figures,
            resting = s.resting, resting_for_children = s.resting_for_children, folded = s.folded,
            awaited = s.awaited
        WHERE queue = s.queue AND version = s.version;
    ELSE
        DELETE FROM toril.standing WHERE queue = s.queue AND version = s.version;
        s.version := s.version + 1;
        INSERT INTO toril.standing VALUES (s.*);
    END IF;
END $$;

-- What `Transaction.save` writes: settings if they changed, and the counters. Who waits for jobs is notified.
CREATE OR REPLACE FUNCTION toril.save_queue(
    q integer, p_last_number bigint, p_moves bigint, p_fronts bigint, p_arrivals bigint, p_claims bigint, p_waiting bigint,
    p_suspects bigint, p_prioritized bigint, p_active bigint, p_delayed bigint, p_waiting_children bigint,
    p_completed bigint, p_failed bigint, p_completed_total bigint, p_failed_total bigint, p_cancelled_total bigint,
    p_events bigint, p_paused smallint, p_concurrency bigint, p_max_waiting bigint, p_rate text, p_window_till bigint,
    p_window_starts bigint, p_held_till bigint, p_flows smallint, p_parked bigint, p_grouped smallint, p_orders bigint,
    p_turns bigint, p_groups_set text, p_groups_declared text, p_figures text, p_resting bigint,
    p_resting_for_children bigint, p_stepping smallint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE s toril.standing;
BEGIN
    UPDATE toril.queues SET paused = p_paused, concurrency = p_concurrency, max_waiting = p_max_waiting, rate = p_rate,
        flows = p_flows, grouped = p_grouped, groups_set = p_groups_set, groups_declared = p_groups_declared,
        stepping = p_stepping
    WHERE key = q AND (paused, concurrency, max_waiting, rate, flows, grouped, groups_set, groups_declared, stepping)
        IS DISTINCT FROM (p_paused, p_concurrency, p_max_waiting, p_rate, p_flows, p_grouped, p_groups_set, p_groups_declared,
            p_stepping);
    SELECT * INTO s FROM toril.standing WHERE queue = q ORDER BY version DESC LIMIT 1;
    IF s.awaited = 1 AND p_arrivals <> s.arrivals THEN
        PERFORM pg_notify('toril.jobs', (SELECT name FROM toril.queues WHERE key = q));
        s.awaited := 0;
    END IF;
    IF p_completed_total + p_failed_total + p_cancelled_total <> s.completed_total + s.failed_total + s.cancelled_total THEN
        PERFORM toril.notify_of_results(q);
    END IF;
    s.last_number := p_last_number;
    s.moves := p_moves;
    s.fronts := p_fronts;
    s.arrivals := p_arrivals;
    s.claims := p_claims;
    s.waiting := p_waiting;
    s.suspects := p_suspects;
    s.prioritized := p_prioritized;
    s.active := p_active;
    s.delayed := p_delayed;
    s.waiting_children := p_waiting_children;
    s.completed := p_completed;
    s.failed := p_failed;
    s.completed_total := p_completed_total;
    s.failed_total := p_failed_total;
    s.cancelled_total := p_cancelled_total;
    s.events := p_events;
    s.window_till := p_window_till;
    s.window_starts := p_window_starts;
    s.held_till := p_held_till;
    s.parked := p_parked;
    s.orders := p_orders;
    s.turns := p_turns;
    s.figures := p_figures;
    s.resting := p_resting;
    s.resting_for_children := p_resting_for_children;
    PERFORM toril.put_standing(s);
END $$;

-- Notify those who wait for results of a queue's jobs, if somebody does.
CREATE OR REPLACE FUNCTION toril.notify_of_results(q integer) RETURNS void LANGUAGE sql AS $$
    SELECT pg_notify('toril.jobs', '=' || name) FROM toril.queues
    WHERE key = q AND results_awaited_till > extract(epoch FROM clock_timestamp()) * 1000
$$;

-- For the next ms, have whoever ends a job of this queue notify those who wait for results.
CREATE OR REPLACE FUNCTION toril.await_results(p_name text, p_ms bigint) RETURNS void LANGUAGE sql AS $$
    UPDATE toril.queues SET results_awaited_till = (extract(epoch FROM clock_timestamp()) * 1000)::bigint + p_ms
    WHERE name = p_name AND results_awaited_till < (extract(epoch FROM clock_timestamp()) * 1000)::bigint + p_ms / 2
$$;

-- A mark of what has arrived in each of these queues; and whoever puts something into one will notify those who wait.
CREATE OR REPLACE FUNCTION toril.await_jobs(p_names text) RETURNS TABLE (name text, mark text) LANGUAGE plpgsql AS $$
DECLARE q toril.queues; s toril.standing;
BEGIN
    FOR q IN SELECT * FROM toril.queues WHERE queues.name IN (SELECT toril.texts(p_names)) ORDER BY key LOOP
        SELECT * INTO s FROM toril.standing WHERE queue = q.key ORDER BY version DESC LIMIT 1;
        IF s.awaited = 0 THEN
            PERFORM 1 FROM toril.queues WHERE key = q.key FOR NO KEY UPDATE;
            SELECT * INTO s FROM toril.standing WHERE queue = q.key ORDER BY version DESC LIMIT 1;
            UPDATE toril.standing SET awaited = 1 WHERE queue = q.key AND version = s.version;
        END IF;
        name := q.name;
        mark := q.key || '.' || s.arrivals;
        RETURN NEXT;
    END LOOP;
END $$;

-- What dates the entry into its place of a job that a step moves: above all that was before the step, and not above
-- what is after it.
CREATE OR REPLACE FUNCTION toril.next_move(p_key bigint) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT moves + 1 FROM toril.standing WHERE queue = (p_key >> 40)::integer ORDER BY version DESC LIMIT 1
$$;

-- Give a token the lease of these jobs, whose fences begin with this one. They get ranks of their own for the time.
CREATE OR REPLACE FUNCTION toril.hold(
    p_keys bigint[], q integer, p_deadline bigint, p_token text, p_worker text, p_now bigint, p_fence bigint, p_alone integer,
    p_max_stalls integer
) RETURNS void LANGUAGE sql AS $$
    UPDATE toril.jobs SET place = 0, rank = -(1::bigint << 62) + p_fence + v.at - 1, moved = NULL
    FROM unnest(p_keys) WITH ORDINALITY v(key, at) WHERE jobs.key = v.key;
    INSERT INTO toril.leases (queue, token, low, high, open, max_stalls, alone, fence, started_at, deadline, worker)
    VALUES (q, p_token, -(1::bigint << 62) + p_fence, -(1::bigint << 62) + p_fence + cardinality(p_keys) - 1,
        cardinality(p_keys), p_max_stalls, p_alone, p_fence, p_now, p_deadline, p_worker)
$$;

-- Take these jobs out of their leases. They still stand where they ran, and are moved or deleted next.
CREATE OR REPLACE FUNCTION toril.let_go(p_keys bigint[]) RETURNS void LANGUAGE sql AS $$
    WITH gone AS (
        SELECT l.queue, l.token, l.low, count(*) AS jobs
        FROM toril.jobs j JOIN toril.leases l ON l.queue = j.queue AND j.rank BETWEEN l.low AND l.high
        WHERE j.key = ANY(p_keys) AND j.place = 0 GROUP BY l.queue, l.token, l.low
    ), less AS (
        UPDATE toril.leases l SET open = l.open - g.jobs FROM gone g
        WHERE l.queue = g.queue AND l.token = g.token AND l.low = g.low AND l.open > g.jobs
    )
    DELETE FROM toril.leases l USING gone g
    WHERE l.queue = g.queue AND l.token = g.token AND l.low = g.low AND l.open <= g.jobs
$$;

-- Renew the lease of one job. One that it shares with others is divided.
CREATE OR REPLACE FUNCTION toril.renew_one(p_key bigint, p_token text, p_now bigint, p_deadline bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE l toril.leases; at bigint;
BEGIN
    SELECT a.* INTO l FROM toril.leases a JOIN toril.jobs j ON a.queue = j.queue AND j.rank BETWEEN a.low AND a.high
    WHERE j.key = p_key AND j.place = 0 AND a.token = p_token AND a.deadline > p_now;
    IF l.token IS NULL THEN
        RETURN false;
    END IF;
    IF l.open > 1 THEN
        SELECT rank INTO at FROM toril.jobs WHERE key = p_key;
        l := toril.divide(l, at);
    END IF;
    UPDATE toril.leases SET deadline = p_deadline WHERE queue = l.queue AND token = l.token AND low = l.low;
    RETURN true;
END $$;

-- Divide a lease into that of one rank, which is returned, and those of the jobs before and behind it.
CREATE OR REPLACE FUNCTION toril.divide(l toril.leases, at bigint) RETURNS toril.leases LANGUAGE plpgsql AS $$
DECLARE part toril.leases;
BEGIN
    DELETE FROM toril.leases WHERE queue = l.queue AND token = l.token AND low = l.low;
    FOR part.low, part.high IN VALUES (l.low, at - 1), (at, at), (at + 1, l.high) LOOP
        SELECT count(*) INTO part.open FROM toril.jobs WHERE queue = l.queue AND place = 0 AND rank BETWEEN part.low AND part.high;
        IF part.open > 0 THEN
            INSERT INTO toril.leases (queue, token, low, high, open, max_stalls, alone, fence, started_at, deadline, worker)
            VALUES (l.queue, l.token, part.low, part.high, part.open, l.max_stalls, l.alone, l.fence + part.low - l.low,
                l.started_at, l.deadline, l.worker);
        END IF;
    END LOOP;
    SELECT * INTO part FROM toril.leases WHERE queue = l.queue AND token = l.token AND low = at;
    RETURN part;
END $$;

-- Run records of a step, in the order of their keys: those of each ending in one row.
CREATE OR REPLACE FUNCTION toril.note_runs(
    p_keys bigint[], p_ids text[], p_names text[], p_causes text[], p_added bigint[], p_started bigint[], p_finished bigint[],
    p_made integer[], p_stalls integer[], p_workers text[], p_texts text[], p_whole boolean[], p_subjects text[],
    p_parents text[]
) RETURNS void LANGUAGE sql AS $$
    INSERT INTO toril.runs (queue, ending, last, size, finished_at, counted, ids, names, causes, added, started, finished, made,
        stalls, workers, texts, whole, subjects, parents)
    SELECT key >> 42, (key >> 40) & 3, max(key & ((1::bigint << 40) - 1)), count(*), max(finished), 1,
        array_agg(id ORDER BY key), array_agg(name ORDER BY key), array_agg(cause ORDER BY key),
        array_agg(added ORDER BY key), array_agg(started ORDER BY key), array_agg(finished ORDER BY key),
        array_agg(made ORDER BY key), array_agg(stalls ORDER BY key), array_agg(worker ORDER BY key),
        array_agg(text ORDER BY key), array_agg(whole ORDER BY key), array_agg(subject ORDER BY key),
        array_agg(parent ORDER BY key)
    FROM unnest(p_keys, p_ids, p_names, p_causes, p_added, p_started, p_finished, p_made, p_stalls, p_workers, p_texts,
        p_whole, p_subjects, p_parents)
        v(key, id, name, cause, added, started, finished, made, stalls, worker, text, whole, subject, parent)
    GROUP BY 1, 2
$$;

-- The value at a place of a list that may be left out, or have one value for all.
CREATE OR REPLACE FUNCTION toril.nth(list anyarray, at bigint) RETURNS anyelement LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN cardinality(list) = 1 THEN list[1] ELSE list[at] END
$$;

-- Run records with keys between these, one row each; no more than a queue keeps of an ending.
CREATE OR REPLACE FUNCTION toril.runs_between(p_after bigint, p_before bigint)
RETURNS TABLE (
    key bigint, id text, name text, cause text, added_at bigint, started_at bigint, finished_at bigint, attempts_made integer,
    stalls integer, worker text, text text, whole boolean, subject text, parent text
) LANGUAGE sql STABLE AS $$
    SELECT (p_after >> 40 << 40) + r.last - r.size + n, coalesce(toril.nth(r.ids, n), r.numbers[n]::text), toril.nth(r.names, n),
        coalesce(toril.nth(r.causes, n), 'completed'), r.added[n], toril.nth(r.started, n),
        coalesce(toril.nth(r.finished, n), r.finished_at), coalesce(toril.nth(r.made, n), 1),
        coalesce(toril.nth(r.stalls, n), 0), toril.nth(r.workers, n), coalesce(toril.nth(r.texts, n), 'null'),
        coalesce(toril.nth(r.whole, n), true), toril.nth(r.subjects, n), toril.nth(r.parents, n)
    FROM toril.runs r, generate_series(1, r.size) n
    WHERE r.queue = p_after >> 42 AND r.ending = (p_after >> 40) & 3 AND r.last > p_after & ((1::bigint << 40) - 1)
        AND r.last - r.size + n > p_after & ((1::bigint << 40) - 1)
        AND (p_after >> 40 << 40) + r.last - r.size + n < p_before
        AND r.last - r.size + n > coalesce((
            SELECT last FROM toril.runs WHERE queue = p_after >> 42 AND ending = (p_after >> 40) & 3
            ORDER BY last DESC LIMIT 1), 0) - 1000
$$;

-- Events with keys between these, one row for each step and kind, of so many steps.
CREATE OR REPLACE FUNCTION toril.events_between(p_after bigint, p_last bigint, p_limit bigint)
RETURNS TABLE (key bigint, "time" bigint, kind text, size integer, jobs text, details text) LANGUAGE sql STABLE AS $$
    WITH found AS (
        SELECT e.*, (e.queue::bigint << 40) + e.last AS key FROM toril.events e
        WHERE e.queue = p_after >> 40 AND e.last > p_after & ((1::bigint << 40) - 1)
            AND e.last <= p_last - (p_after >> 40 << 40)
        ORDER BY e.last LIMIT p_limit
    )
    SELECT f.key, f.time, f.kind, f.size, f.jobs, f.details FROM found f WHERE f.kind IS NOT NULL
    UNION ALL
    SELECT f.key - f.size / 2 * (1 - half), f.time, CASE half WHEN 0 THEN 'added' ELSE 'waiting' END, f.size / 2,
        (SELECT json_agg(number::text ORDER BY number) FROM generate_series(f.added, f.added + f.size / 2 - 1) number)::text,
        CASE half WHEN 0 THEN (
            SELECT json_build_object('name', json_agg(toril.nth(f.names, n) ORDER BY n)) FROM generate_series(1, f.size / 2) n
        )::text END
    FROM found f, generate_series(0, 1) half WHERE f.added IS NOT NULL
    UNION ALL
    SELECT f.key - coalesce(cardinality(f.active), 0), f.time, 'completed', r.size,
        (SELECT json_agg(coalesce(toril.nth(r.ids, n), r.numbers[n]::text) ORDER BY n) FROM generate_series(1, r.size) n)::text,
        (SELECT json_build_object('returnvalue', json_agg(coalesce(toril.nth(r.texts, n), 'null') ORDER BY n))
            FROM generate_series(1, r.size) n)::text
    FROM found f JOIN toril.runs r ON r.queue = f.queue AND r.ending = 0 AND r.last = f.completed
    UNION ALL
    SELECT f.key, f.time, 'active', cardinality(f.active),
        (SELECT json_agg(coalesce(f.active_ids[n], f.active[n]::text) ORDER BY n) FROM generate_series(1, cardinality(f.active)) n)::text,
        NULL
    FROM found f WHERE f.active IS NOT NULL
    ORDER BY 1
$$;

-- What the completed runs that are not in `slices` and `minutes` yet add to the metrics, minute by minute.
CREATE OR REPLACE FUNCTION toril.unfolded(q integer) RETURNS TABLE (minute bigint, field text, count bigint) LANGUAGE sql STABLE AS $$
    SELECT r.finished_at / 60000, t.kind || CASE WHEN t.ms < 1 THEN 0
        ELSE least(floor(ln(t.ms::float8) * 11.541560327111707)::bigint, 256) + 1 END, count(*)
    FROM toril.runs r, generate_series(1, r.size) n,
        LATERAL (VALUES ('w', toril.nth(r.started, n) - CASE WHEN r.ready IS NULL THEN r.added[n] ELSE r.ready[n] END),
            ('r', r.finished_at - toril.nth(r.started, n))) t(kind, ms)
    WHERE r.queue = q AND r.ending = 0 AND r.counted = 0 AND t.ms IS NOT NULL AND r.last > (
        SELECT s.folded FROM toril.standing s WHERE s.queue = q ORDER BY s.version DESC LIMIT 1)
    GROUP BY 1, 2
$$;

CREATE OR REPLACE FUNCTION toril.slices_after(q integer, p_step integer, p_after bigint)
RETURNS TABLE (slice bigint, counted text) LANGUAGE sql STABLE AS $$
    SELECT parts.slice, json_object_agg(parts.field, parts.count)::text FROM (
        SELECT each.slice, each.field, sum(each.count)::bigint AS count FROM (
            SELECT s.slice, c.key AS field, c.value::bigint AS count
            FROM toril.slices s, json_each_text(s.counted::json) c
            WHERE s.queue = q AND s.step = p_step AND s.slice > p_after
            UNION ALL
            SELECT CASE p_step WHEN 0 THEN 0 ELSE u.minute / p_step END, u.field, u.count FROM toril.unfolded(q) u
            WHERE p_step = 0 OR u.minute / p_step > p_after
        ) each GROUP BY each.slice, each.field
    ) parts GROUP BY parts.slice
$$;

CREATE OR REPLACE FUNCTION toril.minutes_between(q integer, p_after bigint, p_last bigint)
RETURNS TABLE (minute bigint, completed bigint, failed bigint) LANGUAGE sql STABLE AS $$
    SELECT each.minute, sum(each.completed)::bigint, sum(each.failed)::bigint FROM (
        SELECT m.minute, m.completed, m.failed FROM toril.minutes m
        WHERE m.queue = q AND m.minute > p_after AND m.minute <= p_last
        UNION ALL
        SELECT r.finished_at / 60000, r.size, 0 FROM toril.runs r
        WHERE r.queue = q AND r.ending = 0 AND r.counted = 0 AND r.finished_at / 60000 > p_after
            AND r.finished_at / 60000 <= p_last AND r.last > (
                SELECT s.folded FROM toril.standing s WHERE s.queue = q ORDER BY s.version DESC LIMIT 1)
    ) each GROUP BY each.minute
$$;

-- When the next lease of a queue is over. One over jobs that another program has deleted is nobody's.
CREATE OR REPLACE FUNCTION toril.next_deadline(q integer) RETURNS bigint LANGUAGE sql AS $$
    DELETE FROM toril.leases l WHERE l.queue = q AND NOT EXISTS (
        SELECT 1 FROM toril.jobs j WHERE j.queue = q AND j.place = 0 AND j.rank BETWEEN l.low AND l.high);
    SELECT min(deadline) FROM toril.leases WHERE queue = q
$$;

-- Have a job that nobody runs, and that stands where only running jobs do, stand at the end of the line.
CREATE OR REPLACE FUNCTION toril.put_back(p_key bigint, p_place integer, p_move bigint) RETURNS void LANGUAGE sql AS $$
    UPDATE toril.jobs SET rank = p_move, moved = NULL WHERE key = p_key AND p_place = 0 AND place = 0
        AND NOT EXISTS (SELECT 1 FROM toril.line l WHERE l.key = p_key)
$$;

-- An option of a job as JSON; NULL if the job does not have it.
CREATE OR REPLACE FUNCTION toril.option(p_options text, p_name text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT (p_options::json -> p_name)::text
$$;

-- A job's options with one of them set to this JSON, or (NULL) without it. The others stay as they are, letter by letter.
CREATE OR REPLACE FUNCTION toril.with_option(p_options text, p_name text, p_value text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT '{' || coalesce(string_agg(to_json(o.key)::text || ': ' || o.value, ', '), '') || '}' FROM (
        SELECT e.key, e.value::text FROM json_each(coalesce(p_options, '{}')::json) e WHERE e.key <> p_name
        UNION ALL SELECT p_name, p_value WHERE p_value IS NOT NULL
    ) o
$$;

-- Note how a child stands now, if it stood in one of these ways before.
CREATE OR REPLACE FUNCTION toril.move_child(
    p_parent bigint, p_from integer[], p_queue text, p_id text, p_to integer, p_text text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE found_one toril.children;
BEGIN
    SELECT * INTO found_one FROM toril.children
    WHERE parent = p_parent AND standing = ANY(p_from) AND queue = p_queue AND id = p_id LIMIT 1;
    IF found_one.parent IS NULL THEN
        RETURN false;
    END IF;
    DELETE FROM toril.children WHERE parent = p_parent AND queue = p_queue AND id = p_id
        AND standing IN (found_one.standing, p_to);
    INSERT INTO toril.children (parent, standing, queue, id, text, number, name)
    VALUES (p_parent, p_to, p_queue, p_id, p_text, found_one.number, found_one.name);
    RETURN true;
END $$;

-- Keep the answer to a call until its sender's next one.
CREATE OR REPLACE FUNCTION toril.remember(p_sender text, p_seq bigint, p_time bigint, p_answer text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE toril.calls SET seq = p_seq, time = p_time, answer = p_answer WHERE sender = p_sender AND epoch = p_seq >> 6;
    IF NOT FOUND THEN
        DELETE FROM toril.calls WHERE sender = p_sender;
        INSERT INTO toril.calls (sender, epoch, seq, time, answer) VALUES (p_sender, p_seq >> 6, p_seq, p_time, p_answer);
    END IF;
    RETURN true;
END $$;

-- Wake a worker that listens for commands.
CREATE OR REPLACE FUNCTION toril.call_worker(p_worker text, p_time bigint) RETURNS void LANGUAGE sql AS $$
    INSERT INTO toril.pokes (worker, count, time) VALUES (p_worker, 1, p_time)
    ON CONFLICT (worker) DO UPDATE SET count = pokes.count + 1, time = excluded.time;
    SELECT pg_notify('toril.jobs', ':' || p_worker)
$$;

-- Keys of about so many jobs, evenly spread from one to another; of all where there are few.
CREATE OR REPLACE FUNCTION toril.sampled(p_first bigint, p_last bigint, p_sample bigint, p_jobs bigint) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF p_jobs <= p_sample THEN
        RETURN QUERY SELECT key FROM toril.jobs WHERE key BETWEEN p_first AND p_last;
    ELSE
        RETURN QUERY SELECT (SELECT key FROM toril.jobs WHERE key >= p_first + (p_last - p_first) * n / (p_sample - 1)
            ORDER BY key LIMIT 1) FROM generate_series(0, p_sample - 1) n;
    END IF;
END $$;
