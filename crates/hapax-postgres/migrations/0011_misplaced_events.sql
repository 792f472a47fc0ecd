-- Misplaced events: events written while the sequence of event ids was too low, for example after a
-- logical replication, which does not copy sequences.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Ids up to which events may have been written while the sequence was too low, and the id up to
-- which they have been checked.
CREATE TABLE hapax.misplaced (
    until    bigint NOT NULL PRIMARY KEY,
    beyond   bigint NOT NULL,
    noted_at timestamptz NOT NULL
);

-- Whether there are unchecked ones. Called whenever a partition is opened; runs as its owner,
-- because the caller needs no right to the table.
CREATE FUNCTION hapax.has_misplaced() RETURNS boolean
    LANGUAGE sql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (SELECT FROM hapax.misplaced)
$$;

-- The highest id that was ever drawn, according to the rows: of an event, a frontier, where a
-- destination starts, or a rotation that began.
CREATE FUNCTION hapax.highest_id() RETURNS bigint
    LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT greatest(
        (SELECT id FROM hapax.outbox_event ORDER BY id DESC LIMIT 1),
        (SELECT max(frontier) FROM hapax.position),
        (SELECT max(frontier) FROM hapax.start),
        (SELECT max(rotation) << 36 FROM hapax.rotation),
        0
    )
$$;

-- Sequences that are lower than a number already drawn. This never happens within one history;
-- logical replication and copies of rows do not copy sequences.
CREATE FUNCTION hapax.low_sequences(OUT sequence text, OUT drawn bigint, OUT highest bigint)
    RETURNS SETOF record
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    FOR sequence, highest IN
        SELECT low.name, low.given FROM (VALUES
            ('hapax.outbox_event_id', hapax.highest_id()),
            ('hapax.checkpoint_number', (SELECT max(checkpoint_number) FROM hapax.position)),
            ('hapax.heartbeat_number', (SELECT max(number) FROM hapax.heartbeat)),
            ('hapax.declaration_version', (SELECT max(version) FROM hapax.declaration)),
            (pg_get_serial_sequence('hapax.attempt', 'id'), (SELECT max(id) FROM hapax.attempt)),
            (pg_get_serial_sequence('hapax.job', 'id'), (SELECT max(id) FROM hapax.job)),
            (pg_get_serial_sequence('hapax.audit_log', 'id'), (SELECT max(id) FROM hapax.audit_log)),
            (pg_get_serial_sequence('hapax.saga_step', 'place'),
             (SELECT max(place) FROM hapax.saga_step)),
            (pg_get_serial_sequence('hapax.saga_signal', 'place'),
             (SELECT max(place) FROM hapax.saga_signal))
        ) AS low (name, given)
    LOOP
        EXECUTE format('SELECT last_value - (NOT is_called)::int4 FROM %s', sequence) INTO drawn;
        IF drawn < highest THEN
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;

-- Raises every sequence that is too low, and writes events again, with new ids, whose ids a
-- partition may already have passed; one call checks at most `rows_max` rows. Returns the range by
-- which the sequence of events was raised, the number of events written again, and whether nothing
-- is left to do. Some of these events may have been delivered already: they keep their event ids
-- and are delivered again.
CREATE FUNCTION hapax.raise_sequences(
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
