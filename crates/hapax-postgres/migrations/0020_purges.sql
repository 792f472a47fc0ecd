-- Purged keys, for services to read that keep answers in memory; and the key that a saga was started
-- under, which stands as long as the saga lives.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

-- The number of the last purge, in one row. A transaction that purges locks the row until it ends, so
-- that numbers become visible in their order and without gaps.
CREATE TABLE hapax.purge_count (
    is_only boolean NOT NULL DEFAULT true PRIMARY KEY CHECK (is_only),
    number  bigint NOT NULL
);

-- The keys that were purged last. A service that finds fewer of them than were counted forgets every
-- answer that it keeps in memory.
CREATE TABLE hapax.key_purge (
    number    bigint NOT NULL PRIMARY KEY,
    tenant    text NOT NULL,
    operation text NOT NULL,
    key       text NOT NULL COLLATE "C",
    purged_at timestamptz NOT NULL
);

-- Notes that a key was purged, in the transaction that purges it; of those before it `kept` stay.
CREATE FUNCTION hapax.note_purge(tenant text, operation text, key text, kept bigint) RETURNS bigint
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    drawn bigint;
BEGIN
    INSERT INTO hapax.purge_count AS count (number)
    VALUES (1)
    ON CONFLICT (is_only) DO UPDATE SET number = count.number + 1
    RETURNING count.number INTO drawn;
    INSERT INTO hapax.key_purge (number, tenant, operation, key, purged_at)
    VALUES (drawn, note_purge.tenant, note_purge.operation, note_purge.key, clock_timestamp());
    DELETE FROM hapax.key_purge WHERE number <= drawn - kept;
    RETURN drawn;
END
$$;

-- The key of the request that started a saga; of one that was started before, nothing.
ALTER TABLE hapax.saga
    ADD COLUMN key_tenant text,
    ADD COLUMN key_operation text,
    ADD COLUMN key text COLLATE "C";
CREATE INDEX saga_key ON hapax.saga (key, key_operation, key_tenant)
    WHERE ended_at IS NULL AND key IS NOT NULL;

-- A saga that has not ended and was started under a key: as long as there is one, the key stands.
CREATE FUNCTION hapax.live_saga(tenant text, operation text, key text) RETURNS text
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT saga.id
    FROM hapax.saga AS saga
    WHERE saga.key = live_saga.key AND saga.key_operation = live_saga.operation
      AND saga.key_tenant = live_saga.tenant AND saga.ended_at IS NULL
    LIMIT 1
$$;

-- Until when a key stands whose time is over at a moment: a minute more, whenever somebody asks, while
-- a saga that was started under it has not ended. It runs as its owner: a role that may claim keys needs
-- no right to read sagas, and learns nothing of them here but that a key stands.
CREATE FUNCTION hapax.stands_until(
    tenant text, operation text, key text, expires_at timestamptz, at timestamptz
) RETURNS timestamptz
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE
        WHEN expires_at > at OR hapax.live_saga(tenant, operation, key) IS NULL THEN expires_at
        ELSE at + interval '1 minute'
    END
$$;

-- As before, but a key stands as long as a saga lives that was started under it.
CREATE OR REPLACE FUNCTION hapax.judge(
    tenant text, operation text, key text, fingerprint bytea, on_expired text,
    OUT outcome text, OUT status integer, OUT headers jsonb, OUT body bytea,
    OUT fresh_for interval
)
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    at timestamptz := clock_timestamp();
    stored record;
BEGIN
    SELECT row.fingerprint, row.state, row.response_status, row.response_headers,
           row.response_body,
           CASE
               WHEN row.expires_at > at OR row.state = 'tombstone' THEN row.expires_at
               ELSE hapax.stands_until(row.tenant, row.operation, row.key, row.expires_at, at)
           END AS expires_at
    INTO stored
    FROM hapax.idempotency_key AS row
    WHERE row.key = judge.key AND row.operation = judge.operation AND row.tenant = judge.tenant;
    IF NOT FOUND THEN
        RETURN;
    ELSIF stored.state = 'tombstone' OR stored.state <> 'in_progress' AND stored.expires_at <= at THEN
        outcome := CASE on_expired WHEN 'gone' THEN 'gone' END;
    ELSIF stored.fingerprint <> fingerprint THEN
        outcome := 'mismatch';
    ELSIF stored.state = 'in_progress' THEN
        outcome := 'in_progress';
    ELSIF substr(stored.response_headers, 1, 21) = 'hapax-encrypted-under'::bytea THEN
        RAISE 'the stored answer is encrypted' USING
            ERRCODE = 'HX010', HINT = 'A service with the key has to answer this operation.';
    ELSE
        outcome := 'replay';
        status := stored.response_status;
        headers := hapax.header_pairs(stored.response_headers);
        body := stored.response_body;
        fresh_for := stored.expires_at - at;
    END IF;
END
$$;
