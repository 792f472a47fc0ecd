-- Leases of parts, the log of checkpoints, and arrivals.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.
--
-- A part is a destination, or one of the groups of shards that it is carried in. What is written
-- all day is only ever appended to, in one half of a log while the other is emptied: no row has a
-- dead version behind it, however long somebody's snapshot keeps the dead from being cleared away.
-- Which half a row goes to is in its number, so nobody has to ask, or to be told, when it changes.

-- Whose each part is: a row changes when the part changes hands, and at no other time. A part that
-- nobody holds has no node.
CREATE TABLE hapax.lease (
    part     text NOT NULL PRIMARY KEY,
    epoch    bigint NOT NULL,
    node     text,
    taken_at timestamptz NOT NULL
);

-- Whoever takes a part may read and park anew what a purge has looked for already: it looks again.
CREATE FUNCTION hapax.look_anew() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE hapax.turn SET kept_until = NULL WHERE kept_until IS NOT NULL;
    RETURN NULL;
END
$$;
REVOKE ALL ON FUNCTION hapax.look_anew() FROM PUBLIC;
CREATE TRIGGER lease_has_purges_look_anew
    AFTER INSERT OR UPDATE OF epoch ON hapax.lease
    FOR EACH STATEMENT EXECUTE FUNCTION hapax.look_anew();

-- How far each part is: the row with its highest number counts. The sets are ranges, such as
-- "5-9,12".
CREATE SEQUENCE hapax.checkpoint_number AS bigint CACHE 1;
CREATE TABLE hapax.checkpoint_log (
    half       smallint NOT NULL,
    number     bigint NOT NULL,
    part       text NOT NULL,
    epoch      bigint NOT NULL,
    frontier   bigint NOT NULL,
    snapshot   text,
    settled    text NOT NULL,
    offered    text NOT NULL,
    written_at timestamptz NOT NULL,
    PRIMARY KEY (part, number, half)
) PARTITION BY LIST (half);
-- A vacuum would only stand in the way of emptying them.
CREATE TABLE hapax.checkpoint_log_0 PARTITION OF hapax.checkpoint_log FOR VALUES IN (0)
    WITH (autovacuum_enabled = false, toast.autovacuum_enabled = false);
CREATE TABLE hapax.checkpoint_log_1 PARTITION OF hapax.checkpoint_log FOR VALUES IN (1)
    WITH (autovacuum_enabled = false, toast.autovacuum_enabled = false);

-- What relays say of themselves: that they live, or that they end.
CREATE SEQUENCE hapax.sign_number AS bigint CACHE 1;
CREATE TABLE hapax.sign (
    half    smallint NOT NULL,
    number  bigint NOT NULL,
    node    text NOT NULL,
    lives   boolean NOT NULL,
    seen_at timestamptz NOT NULL
) PARTITION BY LIST (half);
CREATE TABLE hapax.sign_0 PARTITION OF hapax.sign FOR VALUES IN (0)
    WITH (autovacuum_enabled = false);
CREATE TABLE hapax.sign_1 PARTITION OF hapax.sign FOR VALUES IN (1)
    WITH (autovacuum_enabled = false);
CREATE INDEX sign_seen ON hapax.sign (seen_at);

INSERT INTO hapax.lease (part, epoch, node, taken_at)
SELECT destination, epoch, NULL, written_at
FROM hapax.checkpoint;
INSERT INTO hapax.checkpoint_log
    (half, number, part, epoch, frontier, snapshot, settled, offered, written_at)
SELECT number >> 11 & 1, number, destination, epoch, frontier, snapshot, settled, offered,
       written_at
FROM (
    SELECT nextval('hapax.checkpoint_number') AS number, destination, epoch, frontier, snapshot,
           settled, offered, written_at
    FROM hapax.checkpoint
    OFFSET 0
) AS old;
DROP TABLE hapax.checkpoint;

-- Where every part is. One that has no checkpoint yet stands before the first event.
CREATE VIEW hapax.position AS
SELECT lease.part, lease.epoch, coalesce(newest.frontier, 0) AS frontier, newest.snapshot,
       coalesce(newest.settled, '') AS settled, coalesce(newest.offered, '') AS offered,
       coalesce(newest.written_at, lease.taken_at) AS written_at
FROM hapax.lease AS lease
LEFT JOIN LATERAL (
    SELECT log.frontier, log.snapshot, log.settled, log.offered, log.written_at
    FROM hapax.checkpoint_log AS log
    WHERE log.part = lease.part
    ORDER BY log.number DESC
    LIMIT 1
) AS newest ON true;
COMMENT ON VIEW hapax.position IS
    'Where every part is. A snapshot that is kept may find an older one, or none: read it anew.';

-- Which shards a part has that has never read, and so never said: as many as its siblings have, as
-- far as any of them has said; otherwise all, for an event that is offered twice is better than one
-- that is not. A destination's parts take its shards in turn.
CREATE FUNCTION hapax.mask_of(of_part text) RETURNS integer
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce((
        SELECT sum(1 << shard)::integer
        FROM (
            SELECT 16 / length(replace(said.mask::bit(16)::text, '0', '')) AS parts
            FROM hapax.position AS place
            CROSS JOIN LATERAL hapax.mark(place.part, place.snapshot) AS said
            WHERE place.part LIKE '%/%' AND said.mask > 0
              AND split_part(place.part, '/', 1) = split_part(of_part, '/', 1)
            ORDER BY place.written_at DESC
            LIMIT 1
        ) AS sibling
        JOIN generate_series(0, 15) AS shards (shard)
            ON shard % sibling.parts = split_part(of_part, '/', 2)::integer
    ), 65535)
$$;

-- Empties one half of the log of checkpoints; what counts is carried to the other half first.
-- Fails when somebody reads or writes the half for longer than 50 ms; false when it was empty.
-- It runs as its owner: to empty a table is nothing that a service's role may do by itself.
CREATE FUNCTION hapax.sweep_checkpoints(swept smallint) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '50ms'
AS $$
DECLARE
    name text := CASE swept WHEN 0 THEN 'hapax.checkpoint_log_0' ELSE 'hapax.checkpoint_log_1' END;
BEGIN
    -- Below, each statement must see what was committed before the lock was had.
    IF NOT has_table_privilege(session_user, 'hapax.checkpoint_log', 'INSERT') THEN
        RAISE 'the role may not sweep the log' USING ERRCODE = 'insufficient_privilege';
    ELSIF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE 'a log is swept in a transaction that is read committed' USING ERRCODE = 'HX002';
    ELSIF pg_relation_size(name::regclass) = 0 THEN
        RETURN false;
    END IF;
    EXECUTE 'LOCK TABLE ' || name || ' IN ACCESS EXCLUSIVE MODE';
    INSERT INTO hapax.checkpoint_log
        (half, number, part, epoch, frontier, snapshot, settled, offered, written_at)
    SELECT 1 - swept, newest.number, newest.part, newest.epoch, newest.frontier, newest.snapshot,
           newest.settled, newest.offered, newest.written_at
    FROM hapax.lease AS lease
    CROSS JOIN LATERAL (
        SELECT log.half, log.number, log.part, log.epoch, log.frontier, log.snapshot, log.settled,
               log.offered, log.written_at
        FROM hapax.checkpoint_log AS log
        WHERE log.part = lease.part
        ORDER BY log.number DESC
        LIMIT 1
    ) AS newest
    WHERE newest.half = swept;
    EXECUTE 'TRUNCATE ' || name;
    RETURN true;
END
$$;

-- The same for signs of life: the last of each node is carried for a day.
CREATE FUNCTION hapax.sweep_signs(swept smallint) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '50ms'
AS $$
DECLARE
    name text := CASE swept WHEN 0 THEN 'hapax.sign_0' ELSE 'hapax.sign_1' END;
BEGIN
    IF NOT has_table_privilege(session_user, 'hapax.sign', 'INSERT') THEN
        RAISE 'the role may not sweep the log' USING ERRCODE = 'insufficient_privilege';
    ELSIF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE 'a log is swept in a transaction that is read committed' USING ERRCODE = 'HX002';
    ELSIF pg_relation_size(name::regclass) = 0 THEN
        RETURN false;
    END IF;
    EXECUTE 'LOCK TABLE ' || name || ' IN ACCESS EXCLUSIVE MODE';
    INSERT INTO hapax.sign (half, number, node, lives, seen_at)
    SELECT 1 - swept, number, node, lives, seen_at
    FROM (
        SELECT DISTINCT ON (node) half, number, node, lives, seen_at
        FROM hapax.sign
        ORDER BY node, number DESC
    ) AS last
    WHERE half = swept AND seen_at > clock_timestamp() - interval '1 day';
    EXECUTE 'TRUNCATE ' || name;
    RETURN true;
END
$$;

-- Positions out of their text, such as "5-9,12".
CREATE FUNCTION hapax.positions(ranges text) RETURNS int8multirange
    LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(range_agg(int8range(
        split_part(run, '-', 1)::int8,
        coalesce(nullif(split_part(run, '-', 2), ''), split_part(run, '-', 1))::int8,
        '[]'
    )), '{}')
    FROM string_to_table(nullif(ranges, ''), ',') AS runs (run)
$$;

-- First attempts that arrived, as ranges: a row for those that were settled together and lie
-- within 8,192 positions of each other, so that who looks for one knows where it can be.
CREATE TABLE hapax.arrival (
    part        text NOT NULL,
    positions   text NOT NULL,
    first       bigint NOT NULL,
    last        bigint NOT NULL,
    started_at  timestamptz NOT NULL,
    duration_ms bigint NOT NULL,
    status      smallint,
    PRIMARY KEY (first, part, started_at)
);
