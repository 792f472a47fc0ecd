-- Payload locks: a claim whose key is in use finds out whether another payload is running.
-- A transaction that runs a key holds two advisory locks: that of the key, and, shared, that of its
-- payload under this key. A claim that does not get the key's lock looks at the locks of the
-- transaction that has it.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Number of the advisory lock of a payload under a key. 48 bits are of the key and 16 of the
-- payload, so numbers of one key differ in the last 16 bits only. The hash is not that of
-- hapax.key_lock: two keys whose locks have one number differ in the first 48 bits here.
-- `hapax_postgres::payload_lock` computes the same number.
CREATE FUNCTION hapax.payload_lock(tenant text, operation text, key text, fingerprint bytea)
    RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN ('x' || left(encode(sha256(
        '\x01'::bytea
        || int8send(octet_length(convert_to(tenant, 'UTF8'))::bigint)
        || convert_to(tenant, 'UTF8')
        || int8send(octet_length(convert_to(operation, 'UTF8'))::bigint)
        || convert_to(operation, 'UTF8')
        || int8send(octet_length(convert_to(key, 'UTF8'))::bigint)
        || convert_to(key, 'UTF8')
    ), 'hex'), 12) || left(encode(fingerprint, 'hex'), 4))::bit(64)::bigint;

-- Whether the transaction that holds a key's lock runs another payload under the same key: it holds
-- a payload lock of this key, and not this one. The locks of other transactions say nothing, and
-- neither does the absence of a lock, because a transaction that has ended releases its locks one
-- by one. pg_locks is read once, so that all rows are of one moment. A snapshot that is kept for a
-- whole transaction may be too old to show the response that another request has stored since, so
-- with such an isolation level nothing is said.
CREATE FUNCTION hapax.runs_other_payload(key_lock bigint, payload_lock bigint) RETURNS boolean
    LANGUAGE sql VOLATILE
    RETURN current_setting('transaction_isolation') NOT IN ('repeatable read', 'serializable')
        AND EXISTS (
            SELECT 1
            FROM (
                SELECT virtualtransaction AS holder, mode,
                       (classid::bigint << 32) | objid::bigint AS number
                FROM pg_locks
                WHERE locktype = 'advisory' AND objsubid = 1 AND granted
                  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            ) AS held
            WHERE number = key_lock OR number >> 16 = payload_lock >> 16
            GROUP BY holder
            HAVING bool_or(number = key_lock AND mode = 'ExclusiveLock')
               AND bool_or(number >> 16 = payload_lock >> 16 AND number <> payload_lock
                           AND mode = 'ShareLock')
               AND NOT bool_or(number = payload_lock)
        );

-- Acquires the locks of a claim: `open` with the locks, and otherwise without them `known` if the
-- key has a row that decides, `other` if another payload is running, and `busy`. The block is a
-- savepoint, which is rolled back unless the result is `open`.
CREATE FUNCTION hapax.lock_claim(
    tenant text, operation text, key text, fingerprint bytea, on_expired text
) RETURNS text
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    of_key bigint := hapax.key_lock(tenant, operation, key);
    of_payload bigint := hapax.payload_lock(tenant, operation, key, fingerprint);
    found_state text := 'busy';
BEGIN
    IF pg_try_advisory_xact_lock_shared(of_payload) THEN
        IF pg_try_advisory_xact_lock(of_key) THEN
            -- A separate statement, so that it sees what the last holder of the lock committed.
            IF (hapax.evaluate_claim(tenant, operation, key, fingerprint, on_expired)).outcome IS NULL
            THEN
                RETURN 'open';
            END IF;
            found_state := 'known';
        ELSIF pg_try_advisory_xact_lock(of_payload) THEN
            -- No other transaction has this payload lock.
            IF hapax.runs_other_payload(of_key, of_payload) THEN
                found_state := 'other';
            END IF;
        END IF;
    END IF;
    RAISE SQLSTATE 'HX000';
EXCEPTION WHEN SQLSTATE 'HX000' THEN
    RETURN found_state;
END
$$;

-- As before, but another payload is a mismatch even while the first request is running.
-- hapax.lock_key is not dropped: a claim that is waiting during this migration still calls it.
CREATE OR REPLACE FUNCTION hapax.claim(
    tenant text, operation text, key text, fingerprint bytea,
    retention interval DEFAULT '24 hours', on_expired text DEFAULT 'new',
    wait interval DEFAULT '1 second',
    OUT outcome text, OUT status integer, OUT headers jsonb, OUT body bytea,
    OUT fresh_for interval
)
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    until timestamptz := clock_timestamp() + wait;
    pause double precision := 0.001;
    locked text;
BEGIN
    PERFORM hapax.check_scope(tenant, operation, key);
    IF octet_length(fingerprint) IS DISTINCT FROM 32 THEN
        RAISE 'the fingerprint is not 32 bytes long' USING
            ERRCODE = 'HX001', HINT = 'It is a SHA-256.';
    ELSIF NOT coalesce(retention >= '0', false) THEN
        RAISE 'the retention is missing or negative' USING ERRCODE = 'HX001';
    ELSIF NOT coalesce(on_expired IN ('new', 'gone'), false) THEN
        RAISE 'on_expired is neither new nor gone' USING ERRCODE = 'HX001';
    ELSIF NOT coalesce(wait BETWEEN '0' AND '30 seconds', false) THEN
        RAISE 'the wait is not between 0 and 30 seconds' USING ERRCODE = 'HX001';
    ELSIF hapax.open_claim() IS NOT NULL THEN
        RAISE 'a claim is open in this transaction already' USING
            ERRCODE = 'HX003', HINT = 'Complete or release it first.';
    END IF;
    LOOP
        -- Without the lock, so that replays never wait.
        SELECT known.outcome, known.status, known.headers, known.body, known.fresh_for
        INTO outcome, status, headers, body, fresh_for
        FROM hapax.evaluate_claim(tenant, operation, key, fingerprint, on_expired) AS known;
        EXIT WHEN outcome <> 'in_progress';
        IF outcome IS NULL THEN
            IF locked = 'other' THEN
                -- The row was read once more, because the other claim may have found a response
                -- that was stored after the first look.
                outcome := 'mismatch';
                EXIT;
            END IF;
            locked := hapax.lock_claim(tenant, operation, key, fingerprint, on_expired);
            CONTINUE WHEN locked IN ('known', 'other');
            EXIT WHEN locked = 'open';
            outcome := 'in_progress';
        END IF;
        locked := NULL;
        EXIT WHEN clock_timestamp() >= until;
        PERFORM pg_sleep(least(pause, extract(epoch FROM until - clock_timestamp())));
        pause := least(pause * 2, 0.025);
    END LOOP;
    IF outcome IS NOT NULL THEN
        RETURN;
    END IF;
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        PERFORM hapax.probe(tenant, operation, key);
    END IF;
    PERFORM set_config('hapax.claim', jsonb_build_object(
        'tenant', tenant, 'operation', operation, 'key', key,
        'fingerprint', encode(fingerprint, 'hex'), 'on_expired', on_expired,
        'retention', extract(epoch FROM least(retention, '720 hours'))
    )::text, true);
    outcome := 'open';
END
$$;
