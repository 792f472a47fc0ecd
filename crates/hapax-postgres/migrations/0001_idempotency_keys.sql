-- Idempotency keys: the key table, the secret of derived keys, and the log of purged keys.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Idempotency keys. In atomic mode a row is inserted once, complete with its response; in phased
-- mode it begins as `in_progress` with a lease. `state` is one of in_progress, completed, failed,
-- tombstone, and `on_expired` one of new, gone. There are no CHECK constraints: PostgreSQL would
-- parse and plan them for every inserted row, at a fifth of the cost of the insert.
CREATE TABLE hapax.idempotency_key (
    tenant           text NOT NULL,
    operation        text NOT NULL,
    key              text NOT NULL COLLATE "C",
    fingerprint      bytea NOT NULL,
    state            text NOT NULL,
    epoch            bigint NOT NULL DEFAULT 1,
    lease_until      timestamptz,
    recovery_point   text,
    response_status  smallint,
    response_headers bytea,
    response_body    bytea,
    resource_id      text,
    request          bytea,
    on_expired       text NOT NULL DEFAULT 'new',
    created_at       timestamptz NOT NULL,
    completed_at     timestamptz,
    expires_at       timestamptz NOT NULL,
    PRIMARY KEY (key, operation, tenant)
);
CREATE INDEX idempotency_key_expires ON hapax.idempotency_key (expires_at);
CREATE INDEX idempotency_key_lapses ON hapax.idempotency_key (lease_until)
    WHERE state = 'in_progress';
-- For lists of keys, newest claim first, and for keys claimed around the time of an event. Claims
-- arrive in the order of time, so the index grows only at its end: 70 bytes of WAL per key, and no
-- measurable time.
CREATE INDEX idempotency_key_created ON hapax.idempotency_key (created_at);

-- Number of the advisory lock that a transaction holds while it runs a key. If two keys have the
-- same number, one transaction waits for the other; there is no other effect.
CREATE FUNCTION hapax.key_lock(tenant text, operation text, key text) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN hashtextextended(tenant || E'\n' || operation || E'\n' || key, 0);

-- Secrets shared by every process of this database, also after a restore from a dump. The value
-- comes from the server's strong random source: three UUIDs of 122 random bits each.
CREATE TABLE hapax.secret (
    name       text NOT NULL PRIMARY KEY,
    secret     bytea NOT NULL CHECK (octet_length(secret) = 32),
    created_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO hapax.secret (name, secret)
VALUES ('derivation', sha256(
    uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())
));

-- Number of the last purge of a key, in one row. A purging transaction locks the row until it ends,
-- so that numbers become visible in order and without gaps.
CREATE TABLE hapax.purge_count (
    is_only boolean NOT NULL DEFAULT true PRIMARY KEY CHECK (is_only),
    number  bigint NOT NULL
);

-- The most recently purged keys. A service that finds fewer of them than were counted drops its
-- whole replay cache.
CREATE TABLE hapax.key_purge (
    number    bigint NOT NULL PRIMARY KEY,
    tenant    text NOT NULL,
    operation text NOT NULL,
    key       text NOT NULL COLLATE "C",
    purged_at timestamptz NOT NULL
);

-- Records that a key was purged, in the purging transaction, and keeps the `kept` newest records.
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
