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

-- Turns of the ring, by the database's clock: when each was first seen to be written to, and when it
-- was seen to be closed. No event of a closed turn was written later than that, whatever its
-- producer's clock said. The first turn has no row before the first purge. `last` is about the last
-- id that was drawn in it; `kept_until` how far what deliveries need was taken out of its segment.
CREATE TABLE hapax.turn (
    turn       bigint NOT NULL PRIMARY KEY,
    opened_at  timestamptz NOT NULL,
    closed_at  timestamptz,
    last       bigint,
    kept_until bigint,
    emptied_at timestamptz
);

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

-- What a moment that a test gives, or the database's clock, was so many milliseconds ago.
CREATE FUNCTION hapax.ago(age bigint, at timestamptz) RETURNS timestamptz
    LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(at, clock_timestamp()) - age * interval '1 millisecond'
$$;

-- Notes which turns there are: the one that is written to as opened, and those before it as closed.
-- What nobody noted when it happened, or at a moment that the clock has not reached, because it was
-- set back, counts as happening now: that keeps an event longer, never shorter.
CREATE FUNCTION hapax.note_turns(this bigint, at timestamptz) RETURNS void
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    newest bigint;
BEGIN
    INSERT INTO hapax.turn AS old (turn, opened_at) VALUES (this, at)
    ON CONFLICT (turn) DO UPDATE SET opened_at = at
    WHERE old.opened_at > at;
    FOR segment IN 0..7 LOOP
        CONTINUE WHEN segment = this & 7;
        EXECUTE format('SELECT id FROM hapax.outbox_event_%s ORDER BY id DESC LIMIT 1', segment)
        INTO newest;
        CONTINUE WHEN newest IS NULL;
        -- One that was emptied holds what was on its way into it then.
        INSERT INTO hapax.turn AS old (turn, opened_at, closed_at, last)
        VALUES (newest >> 36, at, at, newest)
        ON CONFLICT (turn) DO UPDATE SET
            closed_at = at,
            last = greatest(old.last, newest),
            kept_until = NULL,
            emptied_at = NULL
        WHERE old.closed_at IS NULL OR old.emptied_at IS NOT NULL;
    END LOOP;
    UPDATE hapax.turn SET closed_at = at, last = coalesce(last, turn << 36)
    WHERE turn < this AND (closed_at IS NULL OR closed_at > at);
END
$$;

-- Turns the ring on when this turn began longer ago than `age` (in milliseconds), events lie in it,
-- and the next segment is empty; says whether it did. What it notes follows the sequence: when that
-- was set and the note was rolled back, the next call writes it.
CREATE FUNCTION hapax.turn_on(age bigint, at timestamptz) RETURNS boolean
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
    PERFORM hapax.note_turns(this, now);
    PERFORM hapax.note_absent(now);
    EXECUTE format('
        SELECT opened_at <= hapax.ago($1, $2)
           AND EXISTS (SELECT FROM hapax.outbox_event_%s)
           AND NOT EXISTS (SELECT FROM hapax.outbox_event_%s)
        FROM hapax.turn WHERE turn = $3', this & 7, this + 1 & 7)
    INTO is_due USING age, now, this;
    IF NOT is_due THEN
        RETURN false;
    END IF;
    SELECT last_value INTO drawn FROM hapax.outbox_event_id;
    PERFORM setval('hapax.outbox_event_id', this + 1 << 36);
    -- By now nobody draws an id of the turn before: another clock than the first would be early.
    now := coalesce(at, clock_timestamp());
    UPDATE hapax.turn SET closed_at = now, last = drawn WHERE turn = this;
    INSERT INTO hapax.turn (turn, opened_at) VALUES (this + 1, now);
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
-- Each settlement asks: in SQL, it would be parsed and planned each time.
CREATE FUNCTION hapax.is_read_in(history text, snapshot text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    name text := nullif(split_part(snapshot, ' ', 3), '');
    cluster text := split_part(name, '/', 1);
    line text := nullif(split_part(name, '/', 2), '');
BEGIN
    RETURN coalesce(
        (cluster IN ('-', split_part(history, '/', 1)) OR split_part(history, '/', 1) = '-')
        AND (line IS NULL OR line = split_part(history, '/', 2)),
        true
    );
END
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

-- Takes what deliveries need out of a segment that everybody has read, beyond an id and up to
-- another, and keeps it apart: what belongs to the next 10,000 deliveries, or to fewer where that is
-- 64 MiB. Says up to where it came, whether that is all, and how many events it took.
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
    -- They are moved, so that at no moment an event is there twice.
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

-- Empties a segment that was closed longer ago than `age` (in milliseconds) and that every part has
-- read; says about how many events that were. What a delivery still needs is kept apart, and where
-- that is much, batch by batch: each call says how many it took, and the last one empties the
-- segment. Fails when somebody writes or reads there for longer than 50 ms. Without a part nothing
-- is read.
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
    FROM hapax.turn WHERE turn = newest >> 36 AND closed_at <= hapax.ago(age, at);
    IF NOT FOUND OR this & 7 = emptied OR NOT EXISTS (SELECT FROM hapax.position) THEN
        RETURN 0;
    END IF;
    -- Who was gone and comes back does so behind this.
    PERFORM FROM hapax.lease WHERE part IN (SELECT hapax.gone_parts(age, at)) FOR UPDATE;
    -- From here on no row comes, and none is there that others do not see.
    EXECUTE format('LOCK TABLE %s IN SHARE MODE', name);
    IF EXISTS (
        SELECT FROM hapax.position AS part
        WHERE part.part NOT IN (SELECT hapax.gone_parts(age, at))
          AND hapax.has_unread(emptied, part.part, part.frontier, part.snapshot)
    ) THEN
        RETURN 0;
    END IF;
    EXECUTE format('SELECT id FROM %s ORDER BY id DESC LIMIT 1', name) INTO newest;
    IF beyond IS NULL THEN
        EXECUTE format('SELECT id - 1 FROM %s ORDER BY id LIMIT 1', name) INTO beyond;
    END IF;
    SELECT reached, is_all, kept INTO moved FROM hapax.keep_apart(emptied, beyond, newest);
    IF NOT moved.is_all THEN
        UPDATE hapax.turn SET kept_until = moved.reached WHERE turn = newest >> 36;
        RETURN greatest(moved.kept, 1);
    END IF;
    EXECUTE format('SELECT id FROM %s ORDER BY id LIMIT 1', name) INTO first;
    EXECUTE format('SELECT count(*) FROM (SELECT FROM %s LIMIT 10000) AS few', name) INTO gone;
    IF gone = 10000 THEN
        gone := newest - first + 1 - moved.kept;
    END IF;
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', name);
    -- A delivery that was made while the lock was waited for needs its event too.
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
    INSERT INTO hapax.turn (turn, opened_at, closed_at, last, emptied_at)
    SELECT turn, now, now, newest, now
    FROM generate_series(coalesce(first, newest) >> 36, newest >> 36, 8) AS turns (turn)
    ON CONFLICT (turn) DO UPDATE SET kept_until = NULL, emptied_at = now;
    RETURN greatest(gone + moved.kept, 1);
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

-- Where the ring cannot be turned on though it is due, for this turn began longer ago than
-- `turn_age`: which parts have not read the segment that comes next, though it was closed longer
-- ago than `age` (both in milliseconds).
CREATE FUNCTION hapax.lagging(
    turn_age bigint, age bigint, at timestamptz,
    OUT segment integer, OUT part text
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
            SELECT FROM hapax.turn WHERE turn = this AND opened_at <= hapax.ago(turn_age, at)
        )
        AND EXISTS (
            SELECT FROM hapax.turn
            WHERE turn = newest >> 36 AND closed_at <= hapax.ago(age, at)
        )
    THEN
        FOR part IN
            SELECT place.part FROM hapax.position AS place
            WHERE place.part NOT IN (SELECT hapax.gone_parts(age, at))
              AND hapax.has_unread(segment, place.part, place.frontier, place.snapshot)
        LOOP
            RETURN NEXT;
        END LOOP;
    END IF;
END
$$;

-- Parks what a part has still to read of a closed segment, in order, at most so many of its new
-- events, and moves its checkpoint behind them; says how many, and nothing when none was left. What
-- was on the wire counts as an attempt that was cut off, as it does when a part is opened.
CREATE FUNCTION hapax.spill_batch(
    spilled integer, of_part text, events_max integer, at timestamptz
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
    FROM hapax.position WHERE part = of_part;
    SELECT before, floor, seen, after, mask INTO mark FROM hapax.mark(of_part, place.snapshot);
    IF NOT hapax.has_unread(spilled, of_part, place.frontier, place.snapshot) THEN
        RETURN 0;
    END IF;
    mark.mask := coalesce(mark.mask, hapax.mask_of(of_part));
    EXECUTE format('SELECT min(id), max(id) FROM %s', name) INTO first, newest;
    EXECUTE format('
        SELECT coalesce(max(id), $1) FROM (
            SELECT id FROM %s WHERE id > $1 AND 1 << shard & $2 <> 0 ORDER BY id LIMIT $3
        ) AS new', name)
    INTO until USING place.frontier, mark.mask, events_max;
    -- Nobody writes here, so one snapshot shows what the next one does.
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
    INTO parked USING of_part, mark.mask, place.frontier, until, mark.before, mark.floor, mark.after,
          mark.seen, at, hapax.positions(place.settled), read,
          hapax.positions(place.offered), place.written_at;
    passed := int8multirange(int8range(first, least(until, newest), '[]'));
    INSERT INTO hapax.checkpoint_log
        (half, number, part, epoch, frontier, snapshot, settled, offered, written_at)
    SELECT (number >> 11 & 1)::int2, number, of_part, place.epoch, until,
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

-- Parks what a part has still to read of a closed segment, batch by batch, and goes on for as long
-- (in milliseconds): its owner is fenced once, and finds them as deliveries. Of each order key the
-- first is due now and the others wait behind it. Says how many it parked.
CREATE FUNCTION hapax.spill(
    spilled integer, of_part text, events_max integer, time_max bigint, at timestamptz
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
    -- As whoever changes deliveries does.
    PERFORM FROM hapax.lease WHERE part = of_part FOR NO KEY UPDATE;
    IF NOT EXISTS (
        SELECT FROM hapax.position
        WHERE part = of_part AND hapax.has_unread(spilled, part, frontier, snapshot)
    ) THEN
        RETURN 0;
    END IF;
    UPDATE hapax.lease SET epoch = epoch + 1 WHERE part = of_part;
    LOOP
        batch := hapax.spill_batch(spilled, of_part, events_max, at);
        EXIT WHEN batch = 0;
        parked := parked + batch;
        EXIT WHEN began <= hapax.ago(time_max, NULL);
    END LOOP;
    RETURN parked;
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
