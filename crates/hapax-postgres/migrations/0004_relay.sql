-- Relay: destinations and where they start, leases of their partitions, checkpoints, and heartbeats
-- of relays.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Destinations that were ever opened, and why one is disabled.
CREATE TABLE hapax.destination (
    name            text NOT NULL PRIMARY KEY,
    first_opened_at timestamptz NOT NULL,
    opened_at       timestamptz NOT NULL,
    disabled_at     timestamptz,
    disabled_reason text
);

-- The frontier at which the partitions of a destination start, whenever they are opened first. The
-- snapshot says which events up to the frontier are skipped: those that were visible in it. Without
-- a snapshot the destination starts with the first event. A row is written before the first
-- partition is opened, or with it, and is never changed.
CREATE TABLE hapax.start (
    destination text NOT NULL PRIMARY KEY,
    frontier    bigint NOT NULL,
    snapshot    text,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Ownership of each partition. A partition is a destination, or one of the groups of shards into
-- which its events are divided. A row changes only when ownership changes; without an owner, `node`
-- is null.
CREATE TABLE hapax.lease (
    partition     text NOT NULL PRIMARY KEY,
    epoch    bigint NOT NULL,
    node     text,
    taken_at timestamptz NOT NULL
);

-- A new owner may read and park events that a purge has already checked, so the purge must check
-- again.
CREATE FUNCTION hapax.check_again() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE hapax.rotation SET kept_until = NULL WHERE kept_until IS NOT NULL;
    RETURN NULL;
END
$$;
REVOKE ALL ON FUNCTION hapax.check_again() FROM PUBLIC;
CREATE TRIGGER lease_has_purges_check_again
    AFTER INSERT OR UPDATE OF epoch ON hapax.lease
    FOR EACH STATEMENT EXECUTE FUNCTION hapax.check_again();

-- The last epoch of deleted partitions. A partition that is created again under the same name
-- continues from it. Otherwise, a former owner that has not noticed the deletion would hold a valid
-- epoch and write the state of the old partition into the new one. The epochs are in a table
-- because a dump contains it, and triggers fill it whichever program deletes a lease.
CREATE TABLE hapax.former_lease (
    partition  text NOT NULL PRIMARY KEY,
    epoch bigint NOT NULL
);

CREATE FUNCTION hapax.keep_epoch() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO hapax.former_lease AS former (partition, epoch)
    VALUES (OLD.partition, OLD.epoch)
    ON CONFLICT (partition) DO UPDATE SET epoch = greatest(former.epoch, excluded.epoch);
    RETURN NULL;
END
$$;
REVOKE ALL ON FUNCTION hapax.keep_epoch() FROM PUBLIC;
CREATE TRIGGER lease_leaves_its_epoch
    AFTER DELETE ON hapax.lease
    FOR EACH ROW EXECUTE FUNCTION hapax.keep_epoch();

CREATE FUNCTION hapax.continue_epoch() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Wait for a transaction that is deleting the row; its former_lease row is then visible.
    PERFORM FROM hapax.lease WHERE partition = NEW.partition FOR NO KEY UPDATE;
    NEW.epoch := greatest(NEW.epoch, (
        SELECT former.epoch + 1 FROM hapax.former_lease AS former WHERE former.partition = NEW.partition
    ));
    RETURN NEW;
END
$$;
REVOKE ALL ON FUNCTION hapax.continue_epoch() FROM PUBLIC;
CREATE TRIGGER lease_continues_epoch
    BEFORE INSERT ON hapax.lease
    FOR EACH ROW EXECUTE FUNCTION hapax.continue_epoch();

-- Checkpoints of each partition, of which the one with the highest number is valid. `settled` and
-- `offered` are ranges, such as "5-9,12". Checkpoints and heartbeats are only appended, to one half
-- of a log while the other half is emptied. So there are no dead row versions, however long an old
-- snapshot keeps vacuum from removing them. The half follows from the number, so no process needs
-- to be informed of a change.
CREATE SEQUENCE hapax.checkpoint_number AS bigint CACHE 1;
CREATE TABLE hapax.checkpoint_log (
    half       smallint NOT NULL,
    number     bigint NOT NULL,
    partition       text NOT NULL,
    epoch      bigint NOT NULL,
    frontier   bigint NOT NULL,
    snapshot   text,
    settled    text NOT NULL,
    offered    text NOT NULL,
    written_at timestamptz NOT NULL,
    settlement bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (partition, number, half)
) PARTITION BY LIST (half);
-- Autovacuum would only hold up the truncation.
CREATE TABLE hapax.checkpoint_log_0 PARTITION OF hapax.checkpoint_log FOR VALUES IN (0)
    WITH (autovacuum_enabled = false, toast.autovacuum_enabled = false);
CREATE TABLE hapax.checkpoint_log_1 PARTITION OF hapax.checkpoint_log FOR VALUES IN (1)
    WITH (autovacuum_enabled = false, toast.autovacuum_enabled = false);

-- Read position of every partition, with the epoch and the settlement that wrote its newest
-- checkpoint. A partition without a checkpoint is before the first event.
CREATE VIEW hapax.position AS
SELECT lease.partition, lease.epoch, coalesce(newest.frontier, 0) AS frontier, newest.snapshot,
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
    WHERE log.partition = lease.partition
    ORDER BY log.number DESC
    LIMIT 1
) AS newest ON true;
COMMENT ON VIEW hapax.position IS
    'Where every partition is. A snapshot that is kept may find an older one, or none: read it anew.';

-- Heartbeats of relays: a relay is alive, or has ended. `knows` holds the destinations that it is
-- configured for.
CREATE SEQUENCE hapax.heartbeat_number AS bigint CACHE 1;
CREATE TABLE hapax.heartbeat (
    half    smallint NOT NULL,
    number  bigint NOT NULL,
    node    text NOT NULL,
    is_alive   boolean NOT NULL,
    seen_at timestamptz NOT NULL,
    destinations   text[]
) PARTITION BY LIST (half);
CREATE TABLE hapax.heartbeat_0 PARTITION OF hapax.heartbeat FOR VALUES IN (0)
    WITH (autovacuum_enabled = false);
CREATE TABLE hapax.heartbeat_1 PARTITION OF hapax.heartbeat FOR VALUES IN (1)
    WITH (autovacuum_enabled = false);
CREATE INDEX heartbeat_seen ON hapax.heartbeat (seen_at);

-- Positions parsed from text such as "5-9,12".
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

-- Positions as text such as "5-9,12".
CREATE FUNCTION hapax.ranges(positions int8multirange) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(string_agg(
        concat_ws('-', lower(run), nullif(upper(run) - 1, lower(run))), ',' ORDER BY lower(run)
    ), '')
    FROM unnest(positions) AS runs (run)
$$;

-- Fields of a checkpoint's snapshot text, as the store's frontier writes them. `mask` has one bit
-- per shard of the partition.
CREATE FUNCTION hapax.mark(
    partition text, snapshot text,
    OUT before pg_snapshot, OUT floor bigint, OUT seen pg_snapshot, OUT after bigint, OUT mask integer
)
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT word[1]::pg_snapshot, word[2]::bigint,
           CASE word[4] WHEN '-' THEN NULL WHEN '=' THEN word[1] ELSE word[4] END::pg_snapshot,
           nullif(word[5], '-')::bigint,
           CASE WHEN word[8] IS NOT NULL THEN word[8]::integer
                WHEN position('/' IN partition) = 0 THEN 65535 END
    FROM (SELECT string_to_array(snapshot, ' ') AS word) AS words
$$;

-- Shards of a partition that has never read and so has not recorded them: as many as its siblings
-- have, if a sibling has read; otherwise all shards, because a duplicate is better than a loss. The
-- shards of a destination are assigned to its partitions round-robin.
CREATE FUNCTION hapax.mask_of(of_partition text) RETURNS integer
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce((
        SELECT sum(1 << shard)::integer
        FROM (
            SELECT 16 / length(replace(said.mask::bit(16)::text, '0', '')) AS partitions
            FROM hapax.position AS place
            CROSS JOIN LATERAL hapax.mark(place.partition, place.snapshot) AS said
            WHERE place.partition LIKE '%/%' AND said.mask > 0
              AND split_part(place.partition, '/', 1) = split_part(of_partition, '/', 1)
            ORDER BY place.written_at DESC
            LIMIT 1
        ) AS sibling
        JOIN generate_series(0, 15) AS shards (shard)
            ON shard % sibling.partitions = split_part(of_partition, '/', 2)::integer
    ), 65535)
$$;

-- Identity of the history that this database's xids and ids belong to: the cluster (which counts
-- xids), its timeline, and the database (whose sequence counts the ids). A dump restored into
-- another database of the same cluster under the old name is another history. '-' replaces the
-- cluster if the role may not read its identifier, and the timeline on a standby.
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
    END || '/' || (SELECT oid FROM pg_database WHERE datname = current_database());
END
$$;

-- Whether a frontier was read in this history, as far as both name it; see the store's frontier.
-- PL/pgSQL, because every settlement calls it: an SQL function would be parsed and planned each
-- time.
CREATE FUNCTION hapax.is_read_in(history text, snapshot text) RETURNS boolean
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

-- Empties one half of the checkpoint log after copying the checkpoints that are still valid to the
-- other half. Fails if another transaction uses the half for longer than 50 ms; returns false if
-- the half was already empty. Runs as its owner, because the role of a service may not truncate
-- tables.
CREATE FUNCTION hapax.sweep_checkpoints(swept smallint) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '50ms'
AS $$
DECLARE
    name text := CASE swept WHEN 0 THEN 'hapax.checkpoint_log_0' ELSE 'hapax.checkpoint_log_1' END;
BEGIN
    -- Each statement below must see what was committed before the lock was acquired.
    IF NOT has_table_privilege(session_user, 'hapax.checkpoint_log', 'INSERT') THEN
        RAISE 'the role may not sweep the log' USING ERRCODE = 'insufficient_privilege';
    ELSIF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE 'a log is swept in a transaction that is read committed' USING ERRCODE = 'HX002';
    ELSIF pg_relation_size(name::regclass) = 0 THEN
        RETURN false;
    END IF;
    EXECUTE 'LOCK TABLE ' || name || ' IN ACCESS EXCLUSIVE MODE';
    INSERT INTO hapax.checkpoint_log
        (half, number, partition, epoch, frontier, snapshot, settled, offered, written_at, settlement)
    SELECT 1 - swept, newest.number, newest.partition, newest.epoch, newest.frontier, newest.snapshot,
           newest.settled, newest.offered, newest.written_at, newest.settlement
    FROM hapax.lease AS lease
    CROSS JOIN LATERAL (
        SELECT log.half, log.number, log.partition, log.epoch, log.frontier, log.snapshot, log.settled,
               log.offered, log.written_at, log.settlement
        FROM hapax.checkpoint_log AS log
        WHERE log.partition = lease.partition
        ORDER BY log.number DESC
        LIMIT 1
    ) AS newest
    WHERE newest.half = swept;
    EXECUTE 'TRUNCATE ' || name;
    RETURN true;
END
$$;

-- The same for heartbeats: the last one of each relay is kept for a day.
CREATE FUNCTION hapax.sweep_heartbeats(swept smallint) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '50ms'
AS $$
DECLARE
    name text := CASE swept WHEN 0 THEN 'hapax.heartbeat_0' ELSE 'hapax.heartbeat_1' END;
BEGIN
    IF NOT has_table_privilege(session_user, 'hapax.heartbeat', 'INSERT') THEN
        RAISE 'the role may not sweep the log' USING ERRCODE = 'insufficient_privilege';
    ELSIF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE 'a log is swept in a transaction that is read committed' USING ERRCODE = 'HX002';
    ELSIF pg_relation_size(name::regclass) = 0 THEN
        RETURN false;
    END IF;
    EXECUTE 'LOCK TABLE ' || name || ' IN ACCESS EXCLUSIVE MODE';
    INSERT INTO hapax.heartbeat (half, number, node, is_alive, seen_at, destinations)
    SELECT 1 - swept, number, node, is_alive, seen_at, destinations
    FROM (
        SELECT DISTINCT ON (node) half, number, node, is_alive, seen_at, destinations
        FROM hapax.heartbeat
        ORDER BY node, number DESC
    ) AS last
    WHERE half = swept AND seen_at > clock_timestamp() - interval '1 day';
    EXECUTE 'TRUNCATE ' || name;
    RETURN true;
END
$$;
