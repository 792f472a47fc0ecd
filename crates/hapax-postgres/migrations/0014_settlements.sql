-- A settlement whose answer was lost is known when it comes again.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

-- Which of the settlements of its epoch wrote the checkpoint; 0 where none did.
ALTER TABLE hapax.checkpoint_log ADD COLUMN settlement bigint NOT NULL DEFAULT 0;

-- Empties one half of the log of checkpoints; what counts is carried to the other half first.
-- Fails when somebody reads or writes the half for longer than 50 ms; false when it was empty.
-- It runs as its owner: to empty a table is nothing that a service's role may do by itself.
CREATE OR REPLACE FUNCTION hapax.sweep_checkpoints(swept smallint) RETURNS boolean
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
        (half, number, part, epoch, frontier, snapshot, settled, offered, written_at, settlement)
    SELECT 1 - swept, newest.number, newest.part, newest.epoch, newest.frontier, newest.snapshot,
           newest.settled, newest.offered, newest.written_at, newest.settlement
    FROM hapax.lease AS lease
    CROSS JOIN LATERAL (
        SELECT log.half, log.number, log.part, log.epoch, log.frontier, log.snapshot, log.settled,
               log.offered, log.written_at, log.settlement
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
