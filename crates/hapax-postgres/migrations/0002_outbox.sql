-- Outbox: eight segments that are written one after the other, and a partition for kept events.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Events, append-only. The default of `xid` is evaluated before that of `id`: the transaction has
-- its number before it draws an id, so no id is older than its transaction.
CREATE SEQUENCE hapax.outbox_event_id AS bigint CACHE 1;
-- Column defaults are evaluated in the order of the columns: first the xid, then the id, then the
-- segment, which is computed from the id.
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
CREATE TABLE hapax.outbox_event_0 PARTITION OF hapax.outbox_event (PRIMARY KEY (id))
    FOR VALUES IN (0);
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
-- Events that a delivery still needed when their segment was emptied.
CREATE TABLE hapax.outbox_event_kept PARTITION OF hapax.outbox_event (PRIMARY KEY (id))
    FOR VALUES IN (-1);

-- Shard (0 to 15) of an aggregate's events.
CREATE FUNCTION hapax.shard_of(aggregate_type text, aggregate_id text) RETURNS smallint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN coalesce((hashtextextended(aggregate_type || E'\n' || aggregate_id, 0) & 15)::smallint, 0::smallint);

-- Shard (0 to 15) of an event: that of its aggregate, or one chosen by its event id.
CREATE FUNCTION hapax.shard_of(aggregate_type text, aggregate_id text, event_id uuid)
    RETURNS smallint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (coalesce(hashtextextended(aggregate_type || E'\n' || aggregate_id, 0),
                     uuid_hash_extended(event_id, 0)) & 15)::smallint;

-- Rotations of the outbox, by the clock of the database: when each was first seen open, and when it
-- was seen closed. No event of a closed rotation was written after that time, regardless of the clock of
-- its producer said. The first rotation has no row before the first purge. `last` is approximately
-- the last id of the rotation. `kept_until` is the id up to which needed events were moved out of
-- its segment.
CREATE TABLE hapax.rotation (
    rotation       bigint NOT NULL PRIMARY KEY,
    opened_at  timestamptz NOT NULL,
    closed_at  timestamptz,
    last       bigint,
    kept_until bigint,
    emptied_at timestamptz
);

-- Approximate number of events after a frontier: the ids that were drawn, rotation by rotation.
CREATE FUNCTION hapax.backlog(frontier bigint) RETURNS bigint
    LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce((
        SELECT sum(greatest(rotation.last - greatest(frontier, rotation.rotation << 36), 0))
        FROM hapax.rotation AS rotation
        WHERE rotation.rotation >= frontier >> 36 AND rotation.rotation < drawn.last >> 36
    ), 0)::bigint + greatest(drawn.last - greatest(frontier, drawn.last >> 36 << 36), 0)
    FROM (SELECT last_value - (NOT is_called)::int4 AS last FROM hapax.outbox_event_id) AS drawn
$$;

-- Approximate id of the first event created at or after a time. Ids and creation times rise
-- together, except for differences between clocks and for long transactions; callers therefore
-- start some minutes earlier. The binary search takes about forty steps along the primary key,
-- which avoids an index that every producer would have to maintain.
CREATE FUNCTION hapax.id_at(moment timestamptz) RETURNS bigint
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    low bigint := (SELECT min(event.id) FROM hapax.outbox_event AS event);
    high bigint := (SELECT max(event.id) FROM hapax.outbox_event AS event);
    middle bigint;
    next record;
BEGIN
    IF low IS NULL THEN
        RETURN 0;
    END IF;
    high := high + 1;
    WHILE low < high LOOP
        middle := low + (high - low) / 2;
        SELECT event.id, event.created_at INTO next
        FROM hapax.outbox_event AS event
        WHERE event.id >= middle
        ORDER BY event.id
        LIMIT 1;
        IF NOT FOUND OR next.id >= high OR next.created_at >= moment THEN
            high := middle;
        ELSE
            low := next.id + 1;
        END IF;
    END LOOP;
    RETURN low;
END
$$;
