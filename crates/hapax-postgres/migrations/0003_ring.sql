-- The outbox becomes a ring of segments.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.
--
-- An id carries its turn in the bits above 36, and a turn its segment: one of eight partitions, in
-- which nothing is ever updated or deleted and which is emptied as a whole. The ring is turned on by
-- setting the sequence to the first id of the next turn: that takes no lock, and transactions that
-- have drawn their ids finish where they began. Between two turns lie ids that nobody draws.

-- What was there is turn 0, where it lies.
ALTER TABLE hapax.outbox_event RENAME TO outbox_event_0;
ALTER INDEX hapax.outbox_event_pkey RENAME TO outbox_event_0_pkey;

-- The defaults are taken in the order of the columns: the xid before the id, the segment out of it.
CREATE TABLE hapax.outbox_event (
    xid            xid8 NOT NULL DEFAULT pg_current_xact_id(),
    id             bigint NOT NULL DEFAULT nextval('hapax.outbox_event_id'),
    segment        smallint NOT NULL
                       DEFAULT (currval('hapax.outbox_event_id') >> 36 & 7)::smallint,
    shard          smallint NOT NULL DEFAULT 0,
    event_id       uuid NOT NULL,
    type           text NOT NULL,
    tenant         text,
    aggregate_type text,
    aggregate_id   text,
    sequence       bigint,
    payload        text NOT NULL,
    headers        text NOT NULL,
    created_at     timestamptz NOT NULL,
    available_at   timestamptz
) PARTITION BY LIST (segment);
ALTER TABLE hapax.outbox_event ATTACH PARTITION hapax.outbox_event_0 FOR VALUES IN (0);
CREATE TABLE hapax.outbox_event_1 PARTITION OF hapax.outbox_event (PRIMARY KEY (id))
    FOR VALUES IN (1);
CREATE TABLE hapax.outbox_event_2 PARTITION OF hapax.outbox_event (PRIMARY KEY (id))
    FOR VALUES IN (2);
CREATE TABLE hapax.outbox_event_3 PARTITION OF hapax.outbox_event (PRIMARY KEY (id))
    FOR VALUES IN (3);
CREATE TABLE hapax.outbox_event_4 PARTITION OF hapax.outbox_event (PRIMARY KEY (id))
    FOR VALUES IN (4);
CREATE TABLE hapax.outbox_event_5 PARTITION OF hapax.outbox_event (PRIMARY KEY (id))
    FOR VALUES IN (5);
CREATE TABLE hapax.outbox_event_6 PARTITION OF hapax.outbox_event (PRIMARY KEY (id))
    FOR VALUES IN (6);
CREATE TABLE hapax.outbox_event_7 PARTITION OF hapax.outbox_event (PRIMARY KEY (id))
    FOR VALUES IN (7);
-- What a delivery still needed when its segment was emptied.
CREATE TABLE hapax.outbox_event_kept PARTITION OF hapax.outbox_event (PRIMARY KEY (id))
    FOR VALUES IN (-1);

-- Turns of the ring. `last` is about the last id that was drawn in it.
CREATE TABLE hapax.turn (
    turn       bigint NOT NULL PRIMARY KEY,
    opened_at  timestamptz NOT NULL,
    closed_at  timestamptz,
    last       bigint,
    emptied_at timestamptz
);
INSERT INTO hapax.turn (turn, opened_at)
SELECT last_value >> 36, now()
FROM hapax.outbox_event_id;

-- About how many events lie beyond a frontier: ids that were drawn, turn by turn.
CREATE FUNCTION hapax.backlog(frontier bigint) RETURNS bigint
    LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce((
        SELECT sum(greatest(turn.last - greatest(frontier, turn.turn << 36), 0))
        FROM hapax.turn AS turn
        WHERE turn.turn >= frontier >> 36 AND turn.turn < drawn.last >> 36
    ), 0)::bigint + greatest(drawn.last - greatest(frontier, drawn.last >> 36 << 36), 0)
    FROM (SELECT last_value - (NOT is_called)::int4 AS last FROM hapax.outbox_event_id) AS drawn
$$;

-- Which of 16 shards an event is in: that of its aggregate, and without one any.
CREATE FUNCTION hapax.shard_of(aggregate_type text, aggregate_id text, event_id uuid)
    RETURNS smallint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (coalesce(hashtextextended(aggregate_type || E'\n' || aggregate_id, 0),
                     uuid_hash_extended(event_id, 0)) & 15)::smallint;

-- Says no to a role that may not delete events. What follows runs as the owner of the tables, for
-- to empty one is nothing that a service's role may do by itself.
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
    -- One purge at a time, and none while a destination is opened. See outbox/hold_purge.
    PERFORM 1 / pg_try_advisory_xact_lock('hapax.outbox_event'::regclass::oid::int4, 0)::int4;
END
$$;

-- Turns the ring on when the first event of this turn was written before `first_before`, and the
-- next segment is empty; says whether it did. What it notes follows the sequence: when that was set
-- and the note was rolled back, the next call writes it.
CREATE FUNCTION hapax.turn_on(first_before timestamptz, at timestamptz) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    drawn bigint;
    this bigint;
    written timestamptz;
    taken boolean;
BEGIN
    PERFORM hapax.check_may_purge();
    SELECT last_value, last_value >> 36 INTO drawn, this FROM hapax.outbox_event_id;
    INSERT INTO hapax.turn AS old (turn, opened_at) VALUES (this, at) ON CONFLICT DO NOTHING;
    UPDATE hapax.turn SET closed_at = at, last = coalesce(last, turn << 36)
    WHERE turn < this AND closed_at IS NULL;
    EXECUTE format('SELECT created_at FROM hapax.outbox_event_%s ORDER BY id LIMIT 1', this & 7)
    INTO written;
    IF written IS NULL OR written > first_before THEN
        RETURN false;
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT FROM hapax.outbox_event_%s)', this + 1 & 7) INTO taken;
    IF taken THEN
        RETURN false;
    END IF;
    SELECT last_value INTO drawn FROM hapax.outbox_event_id;
    PERFORM setval('hapax.outbox_event_id', this + 1 << 36);
    UPDATE hapax.turn SET closed_at = at, last = drawn WHERE turn = this;
    INSERT INTO hapax.turn (turn, opened_at) VALUES (this + 1, at);
    RETURN true;
END
$$;

-- What a part's checkpoint says of what it has read: see the store's frontier. `mask` has a bit for
-- each of its shards.
CREATE FUNCTION hapax.mark(
    part text, snapshot text,
    OUT before pg_snapshot, OUT floor bigint, OUT seen pg_snapshot, OUT after bigint, OUT mask integer
)
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT word[1]::pg_snapshot, word[2]::bigint,
           CASE word[4] WHEN '-' THEN NULL WHEN '=' THEN word[1] ELSE word[4] END::pg_snapshot,
           nullif(word[5], '-')::bigint,
           CASE WHEN word[8] IS NOT NULL THEN word[8]::integer
                WHEN position('/' IN part) = 0 THEN 65535 END
    FROM (SELECT string_to_array(snapshot, ' ') AS word) AS words
$$;

-- Which history the xids and ids of this database belong to: the cluster that counts them, and its
-- timeline. They begin anew when a database is restored on another cluster, and go back when a
-- standby takes over that had not heard of all of them. A role that may not ask for the cluster's
-- name has '-' instead, and a standby instead of a timeline.
CREATE FUNCTION hapax.history() RETURNS text
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
    END;
END
$$;

-- Whether a frontier was read in a history, as far as both have names: see the store's frontier.
CREATE FUNCTION hapax.is_read_in(history text, snapshot text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(
        (theirs[1] = ours[1] OR theirs[1] = '-' OR ours[1] = '-')
        AND (theirs[2] = ours[2] OR theirs[2] IS NULL),
        true
    )
    FROM (
        SELECT string_to_array(history, '/') AS ours,
               string_to_array(split_part(snapshot, ' ', 3), '/') AS theirs
    ) AS names
$$;

-- Whether a part has still to read anything of a segment. Nothing may be written to it meanwhile.
CREATE FUNCTION hapax.has_unread(segment integer, part text, frontier bigint, snapshot text)
    RETURNS boolean
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    mark record;
    unread boolean;
BEGIN
    SELECT before, floor, seen, after, coalesce(mask, 65535) AS mask INTO mark
    FROM hapax.mark(part, snapshot);
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

-- Empties a closed segment whose newest event was written before `written_before` and that every
-- part has read; says about how many events that were. What a delivery still needs is kept apart.
-- Fails when somebody writes or reads there for longer than 50 ms. Without a part nothing is read.
CREATE FUNCTION hapax.empty_segment(emptied integer, written_before timestamptz, at timestamptz)
    RETURNS bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '50ms'
AS $$
DECLARE
    name text := format('hapax.outbox_event_%s', emptied);
    this bigint;
    first bigint;
    newest record;
    gone bigint;
BEGIN
    PERFORM hapax.check_may_purge();
    SELECT last_value >> 36 INTO this FROM hapax.outbox_event_id;
    EXECUTE format('SELECT id, created_at FROM %s ORDER BY id DESC LIMIT 1', name) INTO newest;
    IF this & 7 = emptied OR newest.id IS NULL OR newest.created_at > written_before
        OR NOT EXISTS (SELECT FROM hapax.position) THEN
        RETURN 0;
    END IF;
    -- From here on no row comes, and none is there that others do not see.
    EXECUTE format('LOCK TABLE %s IN SHARE MODE', name);
    IF EXISTS (
        SELECT FROM hapax.position AS part
        WHERE hapax.has_unread(emptied, part.part, part.frontier, part.snapshot)
    ) THEN
        RETURN 0;
    END IF;
    EXECUTE format('SELECT id FROM %s ORDER BY id LIMIT 1', name) INTO first;
    EXECUTE format('SELECT id, created_at FROM %s ORDER BY id DESC LIMIT 1', name) INTO newest;
    EXECUTE format('SELECT count(*) FROM (SELECT FROM %s LIMIT 10000) AS few', name) INTO gone;
    IF gone = 10000 THEN
        gone := newest.id - first + 1;
    END IF;
    EXECUTE format('
        INSERT INTO hapax.outbox_event_kept
            (xid, id, segment, shard, event_id, type, tenant, aggregate_type, aggregate_id,
             sequence, payload, headers, created_at, available_at)
        SELECT xid, id, -1, shard, event_id, type, tenant, aggregate_type, aggregate_id,
               sequence, payload, headers, created_at, available_at
        FROM %s
        WHERE id IN (
            SELECT position
            FROM hapax.delivery
            WHERE position BETWEEN $1 AND $2
              AND state IN (''scheduled'', ''retrying'', ''blocked'', ''dead'')
        )
        ON CONFLICT (id) DO NOTHING', name)
    USING first, newest.id;
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', name);
    -- A delivery that was made while the lock was waited for needs its event too.
    IF EXISTS (
        SELECT FROM hapax.delivery AS delivery
        WHERE position BETWEEN first AND newest.id
          AND position >> 36 & 7 = emptied
          AND state IN ('scheduled', 'retrying', 'blocked', 'dead')
          AND NOT EXISTS (SELECT FROM hapax.outbox_event_kept WHERE id = delivery.position)
    ) THEN
        RETURN 0;
    END IF;
    EXECUTE format('TRUNCATE %s', name);
    INSERT INTO hapax.turn (turn, opened_at, closed_at, last, emptied_at)
    SELECT turn, at, at, newest.id, at
    FROM generate_series(first >> 36, newest.id >> 36, 8) AS turns (turn)
    ON CONFLICT (turn) DO UPDATE SET
        closed_at = coalesce(hapax.turn.closed_at, at),
        emptied_at = at;
    RETURN gone;
END
$$;

-- Positions as their text, such as "5-9,12".
CREATE FUNCTION hapax.ranges(positions int8multirange) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(string_agg(
        concat_ws('-', lower(run), nullif(upper(run) - 1, lower(run))), ',' ORDER BY lower(run)
    ), '')
    FROM unnest(positions) AS runs (run)
$$;

-- Where the ring cannot be turned on though it is due: which parts have not read the segment that
-- comes next, all of whose events were written before `written_before`.
CREATE FUNCTION hapax.lagging(
    first_before timestamptz, written_before timestamptz,
    OUT segment integer, OUT part text
) RETURNS SETOF record
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    this bigint;
    written timestamptz;
    newest timestamptz;
BEGIN
    PERFORM hapax.check_may_purge();
    SELECT last_value >> 36, (last_value >> 36) + 1 & 7 INTO this, segment
    FROM hapax.outbox_event_id;
    EXECUTE format('SELECT created_at FROM hapax.outbox_event_%s ORDER BY id LIMIT 1', this & 7)
    INTO written;
    EXECUTE format('SELECT created_at FROM hapax.outbox_event_%s ORDER BY id DESC LIMIT 1', segment)
    INTO newest;
    IF written <= first_before AND newest <= written_before THEN
        FOR part IN
            SELECT place.part FROM hapax.position AS place
            WHERE hapax.has_unread(segment, place.part, place.frontier, place.snapshot)
        LOOP
            RETURN NEXT;
        END LOOP;
    END IF;
END
$$;

-- Parks what a part has still to read of a closed segment, in order, at most so many of its new
-- events at once, and moves its checkpoint behind them; says how many. Its owner is fenced, and
-- finds them as deliveries: of each order key the first is due now and the others wait behind it.
CREATE FUNCTION hapax.spill(
    spilled integer, of_part text, events_max integer, at timestamptz
) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '50ms'
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
    PERFORM hapax.check_may_purge();
    EXECUTE format('LOCK TABLE %s IN SHARE MODE', name);
    -- As whoever changes deliveries does.
    PERFORM FROM hapax.lease WHERE part = of_part FOR NO KEY UPDATE;
    SELECT epoch, frontier, snapshot, settled, offered INTO STRICT place
    FROM hapax.position WHERE part = of_part;
    SELECT before, floor, seen, after, mask INTO mark FROM hapax.mark(of_part, place.snapshot);
    IF mark.mask IS NULL OR NOT EXISTS (
        SELECT WHERE hapax.has_unread(spilled, of_part, place.frontier, place.snapshot)
    ) THEN
        -- Which shards it has is not known before it has read once.
        RETURN 0;
    END IF;
    EXECUTE format('SELECT min(id), max(id) FROM %s', name) INTO first, newest;
    EXECUTE format('
        SELECT coalesce(max(id), $1) FROM (
            SELECT id FROM %s WHERE id > $1 AND 1 << shard & $2 <> 0 ORDER BY id LIMIT $3
        ) AS new', name)
    INTO until USING place.frontier, mark.mask, events_max;
    -- Nobody writes here, so one snapshot shows what the next one does.
    read := pg_current_snapshot();
    EXECUTE format('
        INSERT INTO hapax.delivery
            (destination, position, state, attempt, next_at, order_key, last_error, changed_at)
        SELECT $1, id,
               CASE WHEN available_at > $9 OR order_key IS NULL THEN ''scheduled''
                    WHEN number = 1 AND NOT EXISTS (
                        SELECT FROM hapax.delivery AS earlier
                        WHERE earlier.destination = $1 AND earlier.order_key = unread.order_key
                          AND earlier.position < unread.id
                          AND earlier.state IN (''retrying'', ''blocked'', ''dead'')
                    ) THEN ''retrying''
                    ELSE ''blocked'' END,
               0, greatest($9, available_at), order_key,
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
                -- What is late may lie in any segment, and the new snapshot is of all of them.
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
        ON CONFLICT (destination, position) DO NOTHING', name)
    USING of_part, mark.mask, place.frontier, until, mark.before, mark.floor, mark.after,
          mark.seen, at, hapax.positions(place.settled), read;
    GET DIAGNOSTICS parked = ROW_COUNT;
    passed := int8multirange(int8range(first, least(until, newest), '[]'));
    INSERT INTO hapax.checkpoint_log
        (half, number, part, epoch, frontier, snapshot, settled, offered, written_at)
    SELECT (number >> 11 & 1)::int2, number, of_part, place.epoch + 1, until,
           format('%s %s %s = - %s %s %s', read, coalesce(mark.floor, 0),
                  coalesce(split_part(place.snapshot, ' ', 3), '-'),
                  coalesce(split_part(place.snapshot, ' ', 6), '-'),
                  coalesce(split_part(place.snapshot, ' ', 7), '0@0'), mark.mask),
           hapax.ranges(hapax.positions(place.settled) - passed),
           hapax.ranges(hapax.positions(place.offered) - passed), at
    FROM (SELECT nextval('hapax.checkpoint_number') AS number OFFSET 0) AS drawn;
    UPDATE hapax.lease SET epoch = place.epoch + 1 WHERE part = of_part;
    RETURN greatest(parked, 1);
END
$$;

-- Appends an event whose payload is in the words of its column.
CREATE OR REPLACE FUNCTION hapax.append(
    type text, payload text, content_type text, aggregate_type text, aggregate_id text,
    sequence bigint, headers jsonb, tenant text, available_at timestamptz, ordered boolean
) RETURNS uuid
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    at timestamptz := date_trunc('milliseconds', clock_timestamp());
    id uuid := hapax.event_id(at);
    owner text := coalesce(tenant, hapax.open_claim() ->> 'tenant');
    every jsonb := hapax.event_headers(headers);
    number integer := coalesce(nullif(current_setting('hapax.events', true), ''), '0')::integer + 1;
BEGIN
    IF NOT hapax.is_name(type) OR type COLLATE "C" ~ '[^A-Za-z0-9._/:-]' THEN
        RAISE 'the event type is not 1 to 255 letters, digits and . _ - / :' USING
            ERRCODE = 'HX004';
    ELSIF (aggregate_type IS NULL) <> (aggregate_id IS NULL) OR ordered AND aggregate_id IS NULL THEN
        RAISE 'an aggregate has a type and an id, and ordered events have one' USING
            ERRCODE = 'HX004';
    ELSIF aggregate_id IS NOT NULL AND (
        NOT hapax.is_name(aggregate_type) OR hapax.has_control(aggregate_type)
        OR NOT hapax.is_name(aggregate_id) OR hapax.has_control(aggregate_id)
    ) THEN
        RAISE 'the aggregate is not 1 to 255 bytes without control characters' USING
            ERRCODE = 'HX004';
    ELSIF owner IS NOT NULL AND NOT hapax.is_name(owner) THEN
        RAISE 'the tenant is not 1 to 255 bytes long' USING ERRCODE = 'HX004';
    ELSIF NOT isfinite(coalesce(available_at, at)) THEN
        RAISE 'the event is available at no time' USING ERRCODE = 'HX004';
    ELSIF number > 10000 THEN
        RAISE 'a transaction emits at most 10000 events' USING ERRCODE = 'HX004';
    END IF;
    IF ordered THEN
        PERFORM pg_advisory_xact_lock(hapax.aggregate_lock(aggregate_type, aggregate_id));
    END IF;
    IF content_type IS NOT NULL THEN
        every := every || jsonb_build_object('content-type', content_type);
    END IF;
    INSERT INTO hapax.outbox_event
        (shard, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
         created_at, available_at)
    VALUES
        (hapax.shard_of(append.aggregate_type, append.aggregate_id, id), id, append.type, owner,
         append.aggregate_type, append.aggregate_id, append.sequence, append.payload, every::text,
         at, append.available_at);
    PERFORM set_config('hapax.events', number::text, true);
    RETURN id;
END
$$;
