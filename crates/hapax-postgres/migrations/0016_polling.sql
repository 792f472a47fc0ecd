-- Polling: endpoints from which consumers fetch events that they cannot be sent.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Polling endpoints. Without a tenant an endpoint returns the events of all tenants, which its creator
-- has to ask for (`all_tenants`). `types` is a JSON array of patterns. `token` and `old_token` are the
-- SHA-256 of bearer tokens; the old one is valid until a time, after a rotation. Cursors are
-- authenticated under `secret`, which is new for each endpoint. `frontier` and `snapshot` are the
-- committed position, in the text of the store's frontier. They are updated by every commit, so a
-- page has room for the new version of a row.
CREATE TABLE hapax.poll_endpoint (
    name            text NOT NULL PRIMARY KEY,
    tenant          text,
    all_tenants     boolean NOT NULL,
    types           text NOT NULL,
    token           bytea NOT NULL CHECK (octet_length(token) = 32),
    old_token       bytea CHECK (octet_length(old_token) = 32),
    old_token_until timestamptz,
    secret          bytea NOT NULL CHECK (octet_length(secret) = 32),
    frontier        bigint NOT NULL,
    snapshot        text,
    created_at      timestamptz NOT NULL,
    created_by      text NOT NULL,
    committed_at    timestamptz,
    last_polled_at  timestamptz,
    CHECK (all_tenants = (tenant IS NULL))
) WITH (fillfactor = 50);

-- How far events were purged: the highest id of a segment that was emptied, and the transaction that
-- emptied one last. A consumer whose cursor is before it may have missed events. One row.
CREATE TABLE hapax.outbox_purged (
    is_only boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (is_only),
    last    bigint NOT NULL,
    xid     xid8
);
INSERT INTO hapax.outbox_purged (last)
SELECT coalesce((
    SELECT greatest((min(rotation) << 36) - 1, 0) FROM hapax.rotation WHERE emptied_at IS NULL
), 0);

-- The highest id that was ever drawn, according to the rows: of an event, a frontier, where a
-- destination starts, or a rotation that began.
-- Polling endpoints count too.
CREATE OR REPLACE FUNCTION hapax.highest_id() RETURNS bigint
    LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT greatest(
        (SELECT id FROM hapax.outbox_event ORDER BY id DESC LIMIT 1),
        (SELECT max(frontier) FROM hapax.position),
        (SELECT max(frontier) FROM hapax.start),
        (SELECT max(frontier) FROM hapax.poll_endpoint),
        (SELECT max(rotation) << 36 FROM hapax.rotation),
        0
    )
$$;

-- Raises every sequence that is too low, and writes events again, with new ids, whose ids a
-- partition may already have passed; one call checks at most `rows_max` rows. Returns the range by
-- which the sequence of events was raised, the number of events written again, and whether nothing
-- is left to do. Some of these events may have been delivered already: they keep their event ids
-- and are delivered again.
-- This version regards the positions of polling endpoints too.
CREATE OR REPLACE FUNCTION hapax.raise_sequences(
    rows_max integer DEFAULT 10000,
    OUT raised_from bigint, OUT raised_to bigint, OUT moved bigint, OUT is_all boolean
)
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '100ms'
AS $$
DECLARE
    low record;
    raised record;
    noted record;
    next bigint;
    reached bigint;
    unread bigint[];
BEGIN
    PERFORM hapax.check_may_purge();
    FOR low IN SELECT sequence FROM hapax.low_sequences() LOOP
        -- A transaction that has drawn a number holds a lock on the sequence until it ends. This
        -- statement waits for all of them, and no other transaction draws a number before this one
        -- ends.
        EXECUTE format('ALTER SEQUENCE %s INCREMENT 1', low.sequence);
        FOR raised IN
            SELECT drawn, highest FROM hapax.low_sequences() WHERE sequence = low.sequence
        LOOP
            -- Unlike setval, this is rolled back with the transaction.
            EXECUTE format('ALTER SEQUENCE %s RESTART WITH %s', low.sequence, raised.highest + 1);
            IF low.sequence = 'hapax.outbox_event_id' THEN
                raised_from := raised.drawn;
                raised_to := raised.highest;
            END IF;
            -- If the number of checkpoints is too low, the ids cannot be trusted either, although
            -- they may have passed the highest one since.
            IF low.sequence = 'hapax.outbox_event_id'
                OR low.sequence = 'hapax.checkpoint_number' AND raised_from IS NULL
            THEN
                INSERT INTO hapax.misplaced (until, beyond, noted_at)
                VALUES (coalesce(raised_from, hapax.highest_id()), 0, clock_timestamp())
                ON CONFLICT (until) DO UPDATE SET beyond = 0;
            END IF;
        END LOOP;
    END LOOP;
    moved := 0;
    SELECT until, beyond INTO noted FROM hapax.misplaced ORDER BY until DESC LIMIT 1 FOR UPDATE;
    is_all := NOT FOUND;
    IF is_all THEN
        RETURN;
    END IF;
    next := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
    -- A row whose xid is higher than that of its writing transaction was copied from another
    -- server. An event is read if every partition whose frontier is past it has seen its xid in
    -- this history.
    WITH partition AS MATERIALIZED (
        SELECT place.frontier,
               CASE WHEN hapax.is_read_in(history.name, place.snapshot) THEN mark.before END AS seen
        FROM (SELECT hapax.history() AS name OFFSET 0) AS history
        CROSS JOIN hapax.position AS place
        CROSS JOIN LATERAL hapax.mark(place.partition, place.snapshot) AS mark
        -- Partitions that are not opened yet are where their destination starts.
        UNION ALL
        SELECT start.frontier,
               CASE WHEN hapax.is_read_in(history.name, start.snapshot) THEN mark.before END
        FROM (SELECT hapax.history() AS name OFFSET 0) AS history
        CROSS JOIN hapax.start AS start
        CROSS JOIN LATERAL hapax.mark(start.destination, start.snapshot) AS mark
        WHERE start.snapshot IS NOT NULL
        -- Polling endpoints are where their consumer has committed.
        UNION ALL
        SELECT polled.frontier,
               CASE WHEN hapax.is_read_in(history.name, polled.snapshot) THEN mark.before END
        FROM (SELECT hapax.history() AS name OFFSET 0) AS history
        CROSS JOIN hapax.poll_endpoint AS polled
        CROSS JOIN LATERAL hapax.mark(polled.name, polled.snapshot) AS mark
    ), looked AS MATERIALIZED (
        SELECT id, xid, xid::text::bigint <= CASE
                   WHEN writer > next THEN writer - (1::bigint << 32)
                   ELSE writer
               END AS is_native
        FROM (
            SELECT id, xid, (next >> 32 << 32) + event.xmin::text::bigint AS writer
            FROM hapax.outbox_event AS event
            WHERE segment <> -1 AND id > noted.beyond AND id <= noted.until
              -- An event that a delivery needs keeps its id, unless an event with the same id was
              -- kept apart: then the delivery needs that one.
              AND (EXISTS (SELECT FROM hapax.outbox_event_kept AS kept WHERE kept.id = event.id)
                   OR NOT EXISTS (
                       SELECT FROM hapax.delivery AS delivery
                       WHERE delivery.position = event.id
                         AND delivery.state IN ('scheduled', 'retrying', 'blocked', 'dead')
                   ))
            ORDER BY id
            LIMIT rows_max
        ) AS found
    )
    SELECT count(*) < rows_max, max(id), array_agg(id) FILTER (WHERE is_native AND EXISTS (
        SELECT FROM partition
        WHERE partition.frontier >= looked.id
          AND NOT coalesce(pg_visible_in_snapshot(looked.xid, partition.seen), false)
    ))
    INTO is_all, reached, unread
    FROM looked;
    IF is_all THEN
        DELETE FROM hapax.misplaced WHERE until <= noted.until;
    ELSE
        UPDATE hapax.misplaced SET beyond = reached WHERE until = noted.until;
    END IF;
    WITH gone AS (
        DELETE FROM hapax.outbox_event
        WHERE id = ANY (unread) AND segment <> -1
        RETURNING id, shard, event_id, type, tenant, aggregate_type, aggregate_id, sequence,
                  payload, headers, created_at, available_at
    )
    INSERT INTO hapax.outbox_event
        (shard, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
         created_at, available_at)
    SELECT shard, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
           created_at, available_at
    FROM gone
    ORDER BY id;
    GET DIAGNOSTICS moved = ROW_COUNT;
END
$$;

-- Empties a segment that was closed more than `age` milliseconds ago and that every partition has
-- read; returns the approximate number of events. Events that a delivery still needs are moved
-- first, in batches if they are many: each call returns the number moved, and the last one
-- truncates the segment. Fails if another transaction uses the segment for longer than 50 ms.
-- Without a partition, nothing has been read and nothing is emptied.
-- This version records how far events were purged. Polling endpoints alone are a reason to empty
-- segments too; no segment waits for them.
CREATE OR REPLACE FUNCTION hapax.empty_segment(emptied integer, age bigint, at timestamptz)
    RETURNS bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '50ms'
AS $$
DECLARE
    name text := format('hapax.outbox_event_%s', emptied);
    now timestamptz := coalesce(at, clock_timestamp());
    this bigint := (SELECT last_value >> 36 FROM hapax.outbox_event_id);
    newest bigint;
    beyond bigint;
    moved record;
    first bigint;
    gone bigint;
    is_needed boolean;
BEGIN
    PERFORM hapax.check_may_purge();
    EXECUTE format('SELECT id FROM %s ORDER BY id DESC LIMIT 1', name) INTO newest;
    SELECT kept_until INTO beyond
    FROM hapax.rotation WHERE rotation = newest >> 36 AND closed_at <= hapax.ago(age, at);
    IF NOT FOUND OR this & 7 = emptied OR NOT EXISTS (SELECT FROM hapax.position)
        AND NOT EXISTS (SELECT FROM hapax.poll_endpoint)
    THEN
        RETURN 0;
    END IF;
    -- An abandoned partition whose relay returns must wait for this transaction.
    PERFORM FROM hapax.lease WHERE partition IN (SELECT hapax.abandoned_partitions(age, at)) FOR UPDATE;
    -- From here on no row is added, and no existing row is invisible to other transactions.
    EXECUTE format('LOCK TABLE %s IN SHARE MODE', name);
    IF EXISTS (
        SELECT FROM hapax.position AS partition
        WHERE partition.partition NOT IN (SELECT hapax.abandoned_partitions(age, at))
          AND hapax.has_unread(emptied, partition.partition, partition.frontier, partition.snapshot)
    ) THEN
        RETURN 0;
    END IF;
    EXECUTE format('SELECT id FROM %s ORDER BY id DESC LIMIT 1', name) INTO newest;
    IF beyond IS NULL THEN
        EXECUTE format('SELECT id - 1 FROM %s ORDER BY id LIMIT 1', name) INTO beyond;
    END IF;
    SELECT reached, is_all, kept INTO moved FROM hapax.keep_apart(emptied, beyond, newest);
    IF NOT moved.is_all THEN
        UPDATE hapax.rotation SET kept_until = moved.reached WHERE rotation = newest >> 36;
        RETURN greatest(moved.kept, 1);
    END IF;
    EXECUTE format('SELECT id FROM %s ORDER BY id LIMIT 1', name) INTO first;
    EXECUTE format('SELECT count(*) FROM (SELECT FROM %s LIMIT 10000) AS few', name) INTO gone;
    IF gone = 10000 THEN
        gone := newest - first + 1 - moved.kept;
    END IF;
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', name);
    -- A delivery row may have been added while this transaction waited for the lock; it needs its
    -- event.
    EXECUTE format('
        SELECT EXISTS (
            SELECT FROM hapax.delivery AS delivery
            JOIN %s AS event ON event.id = delivery.position
            WHERE delivery.position > $1 AND delivery.position <= $2
              AND delivery.state IN (''scheduled'', ''retrying'', ''blocked'', ''dead'')
        )', name) INTO is_needed USING beyond, newest;
    IF is_needed THEN
        RETURN 0;
    END IF;
    EXECUTE format('TRUNCATE %s', name);
    UPDATE hapax.outbox_purged SET last = greatest(last, newest), xid = pg_current_xact_id();
    INSERT INTO hapax.rotation (rotation, opened_at, closed_at, last, emptied_at)
    SELECT rotation, now, now, newest, now
    FROM generate_series(coalesce(first, newest) >> 36, newest >> 36, 8) AS rotations (rotation)
    ON CONFLICT (rotation) DO UPDATE SET kept_until = NULL, emptied_at = now;
    RETURN greatest(gone + moved.kept, 1);
END
$$;
