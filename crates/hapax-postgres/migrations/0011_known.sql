-- What relays know: a part falls to who knows its destination.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

-- The destinations that a node carries some part of, or would; of an older version there is nothing.
ALTER TABLE hapax.sign ADD COLUMN knows text[];

-- As before, with what each node knows.
CREATE OR REPLACE FUNCTION hapax.sweep_signs(swept smallint) RETURNS boolean
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
    INSERT INTO hapax.sign (half, number, node, lives, seen_at, knows)
    SELECT 1 - swept, number, node, lives, seen_at, knows
    FROM (
        SELECT DISTINCT ON (node) half, number, node, lives, seen_at, knows
        FROM hapax.sign
        ORDER BY node, number DESC
    ) AS last
    WHERE half = swept AND seen_at > clock_timestamp() - interval '1 day';
    EXECUTE 'TRUNCATE ' || name;
    RETURN true;
END
$$;
