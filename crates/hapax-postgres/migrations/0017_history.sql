-- Histories name their database, parts say which checkpoint is their newest, and sequences that stand
-- too low are raised.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

-- Which history the xids and ids of this database belong to: the cluster that counts the xids, its
-- timeline, and the database, whose sequence counts the ids. A dump that is restored into another
-- database of the same cluster, and given the old name, is another history. A role that may not ask
-- for the cluster's name has '-' instead, and a standby instead of a timeline. Frontiers that were
-- read before this migration name no database.
CREATE OR REPLACE FUNCTION hapax.history() RETURNS text
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    cluster text := '-';
BEGIN
    IF has_function_privilege(to_regprocedure('pg_control_system()'), 'EXECUTE') THEN
        SELECT system_identifier INTO cluster FROM pg_control_system();
    END IF;
    RETURN cluster || '/' || CASE
        WHEN pg_is_in_recovery() THEN '-'
        ELSE left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
    END || '/' || (SELECT oid FROM pg_database WHERE datname = current_database());
END
$$;

-- Whether a frontier was read in a history, as far as both have names: see the store's frontier.
-- Each settlement asks: in SQL, it would be parsed and planned each time.
CREATE OR REPLACE FUNCTION hapax.is_read_in(history text, snapshot text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    read text[] := string_to_array(nullif(split_part(snapshot, ' ', 3), ''), '/');
    now text[] := string_to_array(history, '/');
BEGIN
    RETURN coalesce(
        (read[1] IN ('-', now[1]) OR now[1] = '-')
        AND (read[2] IS NULL OR read[2] = now[2])
        AND (read[3] IS NULL OR read[3] = now[3]),
        true
    );
END
$$;

-- Where every part is, and under which epoch and by which settlement its newest checkpoint was
-- written. One that has no checkpoint yet stands before the first event.
CREATE OR REPLACE VIEW hapax.position AS
SELECT lease.part, lease.epoch, coalesce(newest.frontier, 0) AS frontier, newest.snapshot,
       coalesce(newest.settled, '') AS settled, coalesce(newest.offered, '') AS offered,
       coalesce(newest.written_at, lease.taken_at) AS written_at,
       coalesce(newest.epoch, 0) AS checkpoint_epoch,
       coalesce(newest.settlement, 0) AS checkpoint_settlement,
       coalesce(newest.number, 0) AS checkpoint_number
FROM hapax.lease AS lease
LEFT JOIN LATERAL (
    SELECT log.frontier, log.snapshot, log.settled, log.offered, log.written_at, log.epoch,
           log.settlement, log.number
    FROM hapax.checkpoint_log AS log
    WHERE log.part = lease.part
    ORDER BY log.number DESC
    LIMIT 1
) AS newest ON true;

-- Up to which id events may have been written while the sequence stood too low, and up to where they
-- have been looked through.
CREATE TABLE hapax.misplaced (
    until    bigint NOT NULL PRIMARY KEY,
    beyond   bigint NOT NULL,
    noted_at timestamptz NOT NULL
);

-- Whether there are any left. Each opening of a part asks, with no right of its own to the table.
CREATE FUNCTION hapax.has_misplaced() RETURNS boolean
    LANGUAGE sql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (SELECT FROM hapax.misplaced)
$$;

-- The highest id that was ever given, as far as rows tell: that of an event, of a frontier, or of a
-- turn that was begun.
CREATE FUNCTION hapax.highest_id() RETURNS bigint
    LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT greatest(
        (SELECT id FROM hapax.outbox_event ORDER BY id DESC LIMIT 1),
        (SELECT max(frontier) FROM hapax.position),
        (SELECT max(turn) << 36 FROM hapax.turn),
        0
    )
$$;

-- Which sequences stand below a number that was given already. In one history none ever does: a
-- logical replication does not copy sequences, and neither does a copy of the rows alone.
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
            ('hapax.sign_number', (SELECT max(number) FROM hapax.sign)),
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

-- Raises every sequence that stands too low, and writes events anew, behind all others, that were
-- written under ids which parts may have passed: so many rows are looked through in one call. Says
-- from where to where the sequence of events was raised, if it was, how many events were written
-- anew, and whether nothing is left to do. Some of them may have been delivered already: they keep
-- their event ids, and are delivered again.
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
        -- Who has drawn a number holds the sequence until the end of its transaction. This waits for
        -- all of them, and nobody draws one before this transaction ends.
        EXECUTE format('ALTER SEQUENCE %s INCREMENT 1', low.sequence);
        FOR raised IN
            SELECT drawn, highest FROM hapax.low_sequences() WHERE sequence = low.sequence
        LOOP
            -- Unlike setval, it is undone when this transaction does not commit.
            EXECUTE format('ALTER SEQUENCE %s RESTART WITH %s', low.sequence, raised.highest + 1);
            IF low.sequence = 'hapax.outbox_event_id' THEN
                raised_from := raised.drawn;
                raised_to := raised.highest;
            END IF;
            -- Once the number of checkpoints is too low, the ids cannot be trusted either, though
            -- they may have passed the highest since.
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
    -- A row that names a later transaction than the one that wrote it was copied from elsewhere, and
    -- what all parts that are beyond it have seen in this history is read.
    WITH part AS MATERIALIZED (
        SELECT place.frontier,
               CASE WHEN hapax.is_read_in(history.name, place.snapshot) THEN mark.before END AS seen
        FROM (SELECT hapax.history() AS name OFFSET 0) AS history
        CROSS JOIN hapax.position AS place
        CROSS JOIN LATERAL hapax.mark(place.part, place.snapshot) AS mark
    ), looked AS MATERIALIZED (
        SELECT id, xid, xid::text::bigint <= CASE
                   WHEN writer > next THEN writer - (1::bigint << 32)
                   ELSE writer
               END AS is_native
        FROM (
            SELECT id, xid, (next >> 32 << 32) + event.xmin::text::bigint AS writer
            FROM hapax.outbox_event AS event
            WHERE segment <> -1 AND id > noted.beyond AND id <= noted.until
              -- What a delivery waits for stays where that finds it: if no event was kept apart under
              -- the same id, which it waits for then.
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
        SELECT FROM part
        WHERE part.frontier >= looked.id
          AND NOT coalesce(pg_visible_in_snapshot(looked.xid, part.seen), false)
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
