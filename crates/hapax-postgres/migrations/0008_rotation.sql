-- Rotation: moving on to the next segment, and emptying segments that every partition has read.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Rejects roles that may not delete events. The functions below run as the owner of the tables,
-- because the role of a service may not truncate them.
CREATE FUNCTION hapax.check_may_purge() RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT has_table_privilege(session_user, 'hapax.outbox_event', 'DELETE') THEN
        RAISE 'the role may not purge the outbox' USING ERRCODE = 'insufficient_privilege';
    ELSIF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE 'the outbox is purged in a transaction that is read committed' USING
            ERRCODE = 'HX002';
    END IF;
    -- One purge at a time, and none while a destination is being opened; see outbox/hold_purge.
    PERFORM 1 / pg_try_advisory_xact_lock('hapax.outbox_event'::regclass::oid::int4, 0)::int4;
END
$$;

-- The time `age` milliseconds before `at`, or before now by the clock of the database if `at` is
-- null. Tests pass `at`.
CREATE FUNCTION hapax.ago(age bigint, at timestamptz) RETURNS timestamptz
    LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(at, clock_timestamp()) - age * interval '1 millisecond'
$$;

-- Absent partitions, and since when: no live relay owns the partition, and its epoch and checkpoint
-- have not changed since.
CREATE TABLE hapax.absence (
    partition       text NOT NULL PRIMARY KEY,
    epoch      bigint NOT NULL,
    written_at timestamptz NOT NULL,
    since      timestamptz NOT NULL,
    noted_at   timestamptz NOT NULL
);

-- Updates the absent partitions. Nothing is recorded unless a live relay owns other partitions: if
-- none is owned, a relay is down, which does not make its partitions absent. A relay is live if it
-- has sent a heartbeat within a day and has not ended. A partition whose destination a live relay
-- is configured for is not absent. An absence that was not confirmed for a day starts again.
CREATE FUNCTION hapax.note_absent(at timestamptz) RETURNS void
    LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
    WITH living AS MATERIALIZED (
        SELECT node, destinations
        FROM (
            SELECT DISTINCT ON (node) node, is_alive, destinations
            FROM hapax.heartbeat
            WHERE seen_at > at - interval '1 day'
            ORDER BY node, number DESC
        ) AS last
        WHERE is_alive
    ), held AS MATERIALIZED (
        SELECT partition FROM hapax.lease WHERE node IN (SELECT node FROM living)
    ), known AS MATERIALIZED (
        SELECT DISTINCT unnest(destinations) AS name FROM living
    ), absent AS MATERIALIZED (
        SELECT partition, epoch, written_at
        FROM hapax.position
        WHERE partition NOT IN (SELECT partition FROM held) AND EXISTS (SELECT FROM held)
          AND split_part(partition, '/', 1) NOT IN (SELECT name FROM known)
    ), back AS (
        DELETE FROM hapax.absence
        WHERE partition NOT IN (SELECT partition FROM absent)
    )
    INSERT INTO hapax.absence AS old (partition, epoch, written_at, since, noted_at)
    SELECT partition, epoch, written_at, at, at
    FROM absent
    ON CONFLICT (partition) DO UPDATE SET
        epoch = excluded.epoch,
        written_at = excluded.written_at,
        since = CASE
            WHEN (old.epoch, old.written_at) = (excluded.epoch, excluded.written_at)
                AND old.since <= at AND old.noted_at > at - interval '1 day' THEN old.since
            ELSE at END,
        noted_at = at
    WHERE (old.epoch, old.written_at) <> (excluded.epoch, excluded.written_at)
       OR old.noted_at NOT BETWEEN at - interval '1 hour' AND at
$$;

-- Abandoned partitions, for which the outbox does not wait: absent for longer than `age`
-- milliseconds, of a destination that no operator has declared, that was not disabled because of
-- failures, and that no relay was configured for within a day (between the end of one relay and the
-- start of the next there may be none).
CREATE FUNCTION hapax.abandoned_partitions(age bigint, at timestamptz) RETURNS SETOF text
    LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT absence.partition
    FROM hapax.absence AS absence
    JOIN hapax.position AS place
        ON (place.partition, place.epoch, place.written_at)
         = (absence.partition, absence.epoch, absence.written_at)
    WHERE absence.since <= hapax.ago(age, at)
      AND NOT EXISTS (
          SELECT FROM hapax.declaration
          WHERE name = split_part(absence.partition, '/', 1) AND removed_at IS NULL
      )
      AND NOT EXISTS (
          SELECT FROM hapax.destination
          WHERE split_part(name, '/', 1) = split_part(absence.partition, '/', 1)
            AND disabled_at IS NOT NULL
      )
      AND NOT EXISTS (
          SELECT FROM hapax.heartbeat
          WHERE seen_at > coalesce(at, clock_timestamp()) - interval '1 day'
            AND split_part(absence.partition, '/', 1) = ANY (destinations)
      )
$$;

-- Records rotations: the current one as open, earlier ones as closed. A change that was not
-- recorded when it happened, or that carries a time in the future because the clock was set back,
-- is recorded with the current time, so that events are kept longer rather than shorter.
CREATE FUNCTION hapax.note_rotations(this bigint, at timestamptz) RETURNS void
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    newest bigint;
BEGIN
    INSERT INTO hapax.rotation AS old (rotation, opened_at) VALUES (this, at)
    ON CONFLICT (rotation) DO UPDATE SET opened_at = at
    WHERE old.opened_at > at;
    FOR segment IN 0..7 LOOP
        CONTINUE WHEN segment = this & 7;
        EXECUTE format('SELECT id FROM hapax.outbox_event_%s ORDER BY id DESC LIMIT 1', segment)
        INTO newest;
        CONTINUE WHEN newest IS NULL;
        -- A rotation that was emptied may hold events whose transactions were in progress at that
        -- time.
        INSERT INTO hapax.rotation AS old (rotation, opened_at, closed_at, last)
        VALUES (newest >> 36, at, at, newest)
        ON CONFLICT (rotation) DO UPDATE SET
            closed_at = at,
            last = greatest(old.last, newest),
            kept_until = NULL,
            emptied_at = NULL
        WHERE old.closed_at IS NULL OR old.emptied_at IS NOT NULL;
    END LOOP;
    UPDATE hapax.rotation SET closed_at = at, last = coalesce(last, rotation << 36)
    WHERE rotation < this AND (closed_at IS NULL OR closed_at > at);
END
$$;

-- Starts the next rotation if the current one began more than `age` milliseconds ago, contains
-- events, and the next segment is empty; returns whether it did. The record follows the sequence:
-- if the sequence was advanced but the record was rolled back, the next call writes it.
CREATE FUNCTION hapax.rotate(age bigint, at timestamptz) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    now timestamptz := coalesce(at, clock_timestamp());
    this bigint := (SELECT last_value >> 36 FROM hapax.outbox_event_id);
    drawn bigint;
    is_due boolean;
BEGIN
    PERFORM hapax.check_may_purge();
    PERFORM hapax.note_rotations(this, now);
    PERFORM hapax.note_absent(now);
    EXECUTE format('
        SELECT opened_at <= hapax.ago($1, $2)
           AND EXISTS (SELECT FROM hapax.outbox_event_%s)
           AND NOT EXISTS (SELECT FROM hapax.outbox_event_%s)
        FROM hapax.rotation WHERE rotation = $3', this & 7, this + 1 & 7)
    INTO is_due USING age, now, this;
    IF NOT is_due THEN
        RETURN false;
    END IF;
    SELECT last_value INTO drawn FROM hapax.outbox_event_id;
    PERFORM setval('hapax.outbox_event_id', this + 1 << 36);
    -- By now no transaction draws an id of the previous rotation, so the time must be read again.
    now := coalesce(at, clock_timestamp());
    UPDATE hapax.rotation SET closed_at = now, last = drawn WHERE rotation = this;
    INSERT INTO hapax.rotation (rotation, opened_at) VALUES (this + 1, now);
    RETURN true;
END
$$;

-- Whether a partition has unread events in a segment. The caller prevents writes to the segment.
CREATE FUNCTION hapax.has_unread(segment integer, partition text, frontier bigint, snapshot text)
    RETURNS boolean
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    mark record;
    unread boolean;
BEGIN
    SELECT before, floor, seen, after, coalesce(mask, 65535) AS mask INTO mark
    FROM hapax.mark(partition, snapshot);
    EXECUTE format('SELECT EXISTS (
        SELECT FROM hapax.outbox_event_%s WHERE id > $1 AND 1 << shard & $2 <> 0
    ) OR $3 IS NOT NULL AND EXISTS (
        SELECT FROM hapax.outbox_event_%1$s
        WHERE id > $4 AND id <= $1 AND 1 << shard & $2 <> 0
          AND NOT pg_visible_in_snapshot(xid, $3)
          AND ($5 IS NULL OR id > $5
               OR $6 IS NOT NULL AND NOT pg_visible_in_snapshot(xid, $6))
    )', segment) INTO unread
    USING frontier, mark.mask, mark.before, mark.floor, mark.after, mark.seen;
    RETURN unread;
END
$$;

-- Moves events that deliveries need out of a segment that every partition has read, from one id to
-- another: the events of the next 10,000 deliveries, or fewer if these reach 64 MiB. Returns the id
-- reached, whether that was all, and the number of events moved.
CREATE FUNCTION hapax.keep_apart(
    segment integer, beyond bigint, until bigint,
    OUT reached bigint, OUT is_all boolean, OUT kept bigint
)
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    deliveries_max CONSTANT integer := 10000;
    bytes_max CONSTANT integer := 67108864;
    name text := format('hapax.outbox_event_%s', segment);
    needed text := 'SELECT DISTINCT position FROM hapax.delivery
        WHERE position > $1 AND position <= $2
          AND state IN (''scheduled'', ''retrying'', ''blocked'', ''dead'')';
BEGIN
    EXECUTE format('
        SELECT max(position) FILTER (WHERE before < $4),
               count(*) < $3 AND coalesce(bool_and(before < $4), true)
        FROM (
            SELECT position,
                   coalesce(sum(bytes) OVER (
                       ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                   ), 0) AS before
            FROM (
                SELECT live.position, octet_length(event.payload) AS bytes
                FROM (%s ORDER BY position LIMIT $3) AS live
                LEFT JOIN %s AS event ON event.id = live.position
            ) AS found
        ) AS sized', needed, name)
    INTO reached, is_all USING beyond, until, deliveries_max, bytes_max;
    -- Moved in one statement, so that an event never exists twice.
    EXECUTE format('
        WITH taken AS (
            DELETE FROM %s AS event USING (%s) AS live
            WHERE event.id = live.position
            RETURNING xid, id, shard, event_id, type, tenant, aggregate_type, aggregate_id,
                      sequence, payload, headers, created_at, available_at
        )
        INSERT INTO hapax.outbox_event_kept
            (xid, id, segment, shard, event_id, type, tenant, aggregate_type, aggregate_id,
             sequence, payload, headers, created_at, available_at)
        SELECT xid, id, -1, shard, event_id, type, tenant, aggregate_type, aggregate_id,
               sequence, payload, headers, created_at, available_at
        FROM taken
        ON CONFLICT (id) DO NOTHING', name, needed)
    USING beyond, reached;
    GET DIAGNOSTICS kept = ROW_COUNT;
END
$$;

-- Empties a segment that was closed more than `age` milliseconds ago and that every partition has
-- read; returns the approximate number of events. Events that a delivery still needs are moved
-- first, in batches if they are many: each call returns the number moved, and the last one
-- truncates the segment. Fails if another transaction uses the segment for longer than 50 ms.
-- Without a partition, nothing has been read and nothing is emptied.
CREATE FUNCTION hapax.empty_segment(emptied integer, age bigint, at timestamptz)
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
    IF NOT FOUND OR this & 7 = emptied OR NOT EXISTS (SELECT FROM hapax.position) THEN
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
    INSERT INTO hapax.rotation (rotation, opened_at, closed_at, last, emptied_at)
    SELECT rotation, now, now, newest, now
    FROM generate_series(coalesce(first, newest) >> 36, newest >> 36, 8) AS rotations (rotation)
    ON CONFLICT (rotation) DO UPDATE SET kept_until = NULL, emptied_at = now;
    RETURN greatest(gone + moved.kept, 1);
END
$$;

-- Partitions that prevent a rotation that is due: the current one began more than `rotation_age`
-- milliseconds ago, and these partitions have not read the next segment, which was closed more than
-- `age` milliseconds ago.
CREATE FUNCTION hapax.lagging(
    rotation_age bigint, age bigint, at timestamptz,
    OUT segment integer, OUT partition text
) RETURNS SETOF record
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    this bigint := (SELECT last_value >> 36 FROM hapax.outbox_event_id);
    newest bigint;
    is_written boolean;
BEGIN
    PERFORM hapax.check_may_purge();
    segment := this + 1 & 7;
    EXECUTE format('
        SELECT EXISTS (SELECT FROM hapax.outbox_event_%s),
               (SELECT id FROM hapax.outbox_event_%s ORDER BY id DESC LIMIT 1)', this & 7, segment)
    INTO is_written, newest;
    IF is_written
        AND EXISTS (
            SELECT FROM hapax.rotation WHERE rotation = this AND opened_at <= hapax.ago(rotation_age, at)
        )
        AND EXISTS (
            SELECT FROM hapax.rotation
            WHERE rotation = newest >> 36 AND closed_at <= hapax.ago(age, at)
        )
    THEN
        FOR partition IN
            SELECT place.partition FROM hapax.position AS place
            WHERE place.partition NOT IN (SELECT hapax.abandoned_partitions(age, at))
              AND hapax.has_unread(segment, place.partition, place.frontier, place.snapshot)
        LOOP
            RETURN NEXT;
        END LOOP;
    END IF;
END
$$;

-- Parks the unread events of a partition in a closed segment, in order and at most `events_max` new
-- ones, and moves the checkpoint past them. Returns their number, or 0 if nothing was left. An
-- event that was being delivered counts as an interrupted attempt, as it does when a partition is
-- opened.
CREATE FUNCTION hapax.spill_batch(
    spilled integer, of_partition text, events_max integer, at timestamptz
) RETURNS bigint
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    name text := format('hapax.outbox_event_%s', spilled);
    place record;
    mark record;
    first bigint;
    newest bigint;
    until bigint;
    passed int8multirange;
    read pg_snapshot;
    parked bigint;
BEGIN
    SELECT epoch, frontier, snapshot, settled, offered, written_at INTO STRICT place
    FROM hapax.position WHERE partition = of_partition;
    SELECT before, floor, seen, after, mask INTO mark FROM hapax.mark(of_partition, place.snapshot);
    IF NOT hapax.has_unread(spilled, of_partition, place.frontier, place.snapshot) THEN
        RETURN 0;
    END IF;
    mark.mask := coalesce(mark.mask, hapax.mask_of(of_partition));
    EXECUTE format('SELECT min(id), max(id) FROM %s', name) INTO first, newest;
    EXECUTE format('
        SELECT coalesce(max(id), $1) FROM (
            SELECT id FROM %s WHERE id > $1 AND 1 << shard & $2 <> 0 ORDER BY id LIMIT $3
        ) AS new', name)
    INTO until USING place.frontier, mark.mask, events_max;
    -- The segment is locked against writes, so one snapshot shows everything.
    read := pg_current_snapshot();
    EXECUTE format('
        WITH parked AS (
        INSERT INTO hapax.delivery
            (destination, position, state, attempt, next_at, order_key, last_error, changed_at)
        SELECT $1, id,
               CASE WHEN $12 @> id THEN ''retrying''
                    WHEN available_at > $9 OR order_key IS NULL THEN ''scheduled''
                    WHEN number = 1 AND NOT EXISTS (
                        SELECT FROM hapax.delivery AS earlier
                        WHERE earlier.destination = $1 AND earlier.order_key = unread.order_key
                          AND earlier.position < unread.id
                          AND earlier.state IN (''retrying'', ''blocked'', ''dead'')
                    ) THEN ''retrying''
                    ELSE ''blocked'' END,
               ($12 @> id)::int4, greatest($9, available_at), order_key,
               ''the destination lagged a whole ring behind'', $9
        FROM (
            SELECT id, order_key, available_at,
                   row_number() OVER (PARTITION BY order_key, available_at > $9 ORDER BY id)
                       AS number
            FROM (
                SELECT id, aggregate_type || E''\n'' || aggregate_id AS order_key,
                       coalesce(available_at, ''-infinity'') AS available_at
                FROM %s
                WHERE 1 << shard & $2 <> 0 AND NOT $10 @> id AND id > $3 AND id <= $4
                UNION ALL
                -- Late events may be in any segment; the new snapshot covers all of them.
                SELECT id, aggregate_type || E''\n'' || aggregate_id,
                       coalesce(available_at, ''-infinity'')
                FROM hapax.outbox_event
                WHERE segment <> -1 AND 1 << shard & $2 <> 0 AND NOT $10 @> id
                  AND $5 IS NOT NULL AND id > $6 AND id <= $3
                  AND NOT pg_visible_in_snapshot(xid, $5)
                  AND pg_visible_in_snapshot(xid, $11)
                  AND ($7 IS NULL OR id > $7
                       OR $8 IS NOT NULL AND NOT pg_visible_in_snapshot(xid, $8))
            ) AS keyed
        ) AS unread
        ORDER BY id
        ON CONFLICT (destination, position) DO NOTHING
        RETURNING position, attempt, last_error
        ), logged AS (
        INSERT INTO hapax.attempt
            (destination, position, number, started_at, duration_ms, outcome, error, response_head)
        SELECT $1, position, 1, $13, 0, ''interrupted'', last_error, ''''
        FROM parked
        WHERE attempt = 1
        ORDER BY position
        )
        SELECT count(*) FROM parked', name)
    INTO parked USING of_partition, mark.mask, place.frontier, until, mark.before, mark.floor, mark.after,
          mark.seen, at, hapax.positions(place.settled), read,
          hapax.positions(place.offered), place.written_at;
    passed := int8multirange(int8range(first, least(until, newest), '[]'));
    INSERT INTO hapax.checkpoint_log
        (half, number, partition, epoch, frontier, snapshot, settled, offered, written_at)
    SELECT (number >> 11 & 1)::int2, number, of_partition, place.epoch, until,
           format('%s %s %s = - %s %s %s', read, coalesce(mark.floor, 0),
                  coalesce(split_part(place.snapshot, ' ', 3), '-'),
                  coalesce(split_part(place.snapshot, ' ', 6), '-'),
                  coalesce(split_part(place.snapshot, ' ', 7), '0@0'), mark.mask),
           hapax.ranges(hapax.positions(place.settled) - passed),
           hapax.ranges(hapax.positions(place.offered) - passed), at
    FROM (SELECT nextval('hapax.checkpoint_number') AS number OFFSET 0) AS drawn;
    RETURN greatest(parked, 1);
END
$$;

-- Parks the unread events of a partition in a closed segment, batch by batch for at most `time_max`
-- milliseconds; returns the number parked. The owner is fenced once and then finds the events as
-- deliveries. Of each order key the first event is due now, and the others wait for it.
CREATE FUNCTION hapax.spill(
    spilled integer, of_partition text, events_max integer, time_max bigint, at timestamptz
) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '50ms'
AS $$
DECLARE
    began CONSTANT timestamptz := clock_timestamp();
    batch bigint;
    parked bigint := 0;
BEGIN
    PERFORM hapax.check_may_purge();
    EXECUTE format('LOCK TABLE hapax.outbox_event_%s IN SHARE MODE', spilled);
    -- The lock that every change of deliveries takes.
    PERFORM FROM hapax.lease WHERE partition = of_partition FOR NO KEY UPDATE;
    IF NOT EXISTS (
        SELECT FROM hapax.position
        WHERE partition = of_partition AND hapax.has_unread(spilled, partition, frontier, snapshot)
    ) THEN
        RETURN 0;
    END IF;
    UPDATE hapax.lease SET epoch = epoch + 1 WHERE partition = of_partition;
    LOOP
        batch := hapax.spill_batch(spilled, of_partition, events_max, at);
        EXIT WHEN batch = 0;
        parked := parked + batch;
        EXIT WHEN began <= hapax.ago(time_max, NULL);
    END LOOP;
    RETURN parked;
END
$$;
