-- SQL contract, version 2: events in the call that stores the response, phased requests, the rows of
-- the profiles, and the same functions with the privileges of their owner.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Version of the functions that services call. A program that needs a later one refuses to start.
CREATE FUNCTION hapax.contract_version() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN 2;
COMMENT ON FUNCTION hapax.contract_version IS 'Returns the version of the SQL contract.';

-- Columns of a phased request that only this contract writes; the store keeps or clears them.
-- `owner` names the process that has the key. `recovery_data` is what a phase has recorded for the
-- next owner. `entered_epoch` is the epoch of the first owner since the key was last entered, or
-- null for 1: a later epoch means that another owner did not finish.
ALTER TABLE hapax.idempotency_key
    ADD COLUMN owner text,
    ADD COLUMN recovery_data jsonb,
    ADD COLUMN entered_epoch bigint;

-- Emits the event that a JSON object describes. Under a key of phased mode, the event has the
-- tenant and the hash of that key, as under a claim.
CREATE FUNCTION hapax.emit_object(event jsonb, of_tenant text, of_key text) RETURNS uuid
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    wrong text;
    number bigint;
    moment timestamptz;
    is_ordered boolean;
    bytes bytea;
    owner text := coalesce(event ->> 'tenant', of_tenant);
    every jsonb := nullif(event -> 'headers', 'null');
BEGIN
    IF jsonb_typeof(event) IS DISTINCT FROM 'object' THEN
        RAISE 'an event is not an object' USING ERRCODE = 'HX004';
    END IF;
    SELECT format('%s: %s', name, jsonb_typeof(value)) INTO wrong
    FROM jsonb_each(event) AS member (name, value)
    WHERE CASE
        WHEN name IN ('type', 'payload', 'payload_base64', 'content_type', 'aggregate_type',
                      'aggregate_id', 'tenant', 'available_at')
        THEN jsonb_typeof(value) NOT IN ('string', 'null')
        WHEN name = 'ordered' THEN jsonb_typeof(value) NOT IN ('boolean', 'null')
        ELSE name NOT IN ('sequence', 'headers')
    END
    LIMIT 1;
    IF FOUND THEN
        RAISE 'an event has a member that is unknown or of the wrong type' USING
            ERRCODE = 'HX004',
            DETAIL = left(wrong, 200),
            HINT = 'The payload is the text of the JSON, as a string.';
    ELSIF (event ->> 'payload' IS NULL) = (event ->> 'payload_base64' IS NULL) THEN
        RAISE 'an event has either the member payload or payload_base64' USING ERRCODE = 'HX004';
    ELSIF event ->> 'payload' IS NOT NULL AND event ->> 'content_type' IS NOT NULL THEN
        RAISE 'content_type belongs to payload_base64' USING ERRCODE = 'HX004';
    ELSIF event ->> 'available_at' COLLATE "C"
        !~* '^[0-9]{4}-[0-9]{2}-[0-9]{2}[t ][0-9:.]+(z|[+-][0-9]{2}(:?[0-9]{2})?)$'
    THEN
        -- Other forms depend on the time zone and the date style of the session.
        RAISE 'available_at is not a time with its offset' USING ERRCODE = 'HX004';
    END IF;
    BEGIN
        number := (event ->> 'sequence')::bigint;
        moment := (event ->> 'available_at')::timestamptz;
        is_ordered := coalesce((event ->> 'ordered')::boolean, false);
        bytes := decode(event ->> 'payload_base64', 'base64');
    EXCEPTION WHEN data_exception THEN
        RAISE 'a member of an event is malformed' USING
            ERRCODE = 'HX004', DETAIL = left(SQLERRM, 200);
    END;
    IF of_key IS NOT NULL AND jsonb_typeof(coalesce(every, '{}')) = 'object' THEN
        every := jsonb_build_object('idempotency_key_hash',
            left(encode(sha256(convert_to(of_key, 'UTF8')), 'hex'), 16)) || coalesce(every, '{}');
    END IF;
    IF bytes IS NULL THEN
        RETURN hapax.emit(event ->> 'type', event ->> 'payload', event ->> 'aggregate_type',
            event ->> 'aggregate_id', number, every, owner, moment, is_ordered);
    END IF;
    RETURN hapax.emit_bytes(event ->> 'type', bytes, event ->> 'content_type',
        event ->> 'aggregate_type', event ->> 'aggregate_id', number, every, owner, moment,
        is_ordered);
END
$$;

-- Emits the events of an array, in order, under a key of phased mode if one is given.
CREATE FUNCTION hapax.emit_events(events jsonb, of_tenant text, of_key text) RETURNS uuid[]
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    event jsonb;
    ids uuid[] := '{}';
BEGIN
    IF jsonb_typeof(events) IS DISTINCT FROM 'array' THEN
        RAISE 'the events are not an array' USING ERRCODE = 'HX004';
    END IF;
    FOR event IN SELECT value FROM jsonb_array_elements(events) LOOP
        ids := ids || hapax.emit_object(event, of_tenant, of_key);
    END LOOP;
    RETURN ids;
END
$$;

CREATE FUNCTION hapax.emit_many(events jsonb) RETURNS uuid[]
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN hapax.emit_events(events, NULL, NULL);
END
$$;
COMMENT ON FUNCTION hapax.emit_many IS
    'Adds the events of an array to this transaction, in order, and returns their ids.';

-- As before, and says when to try again. The function of version 1 is renamed and not dropped: a claim
-- that is waiting during this migration still runs it.
ALTER FUNCTION hapax.claim(text, text, text, bytea, interval, text, interval) RENAME TO claim_1;
CREATE FUNCTION hapax.claim(
    tenant text, operation text, key text, fingerprint bytea,
    retention interval DEFAULT '24 hours', on_expired text DEFAULT 'new',
    wait interval DEFAULT '1 second',
    OUT outcome text, OUT status integer, OUT headers jsonb, OUT body bytea,
    OUT fresh_for interval, OUT retry_after_ms integer
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
        IF clock_timestamp() >= until THEN
            retry_after_ms := 1000;
            EXIT;
        END IF;
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
COMMENT ON FUNCTION hapax.claim IS
    'Takes an idempotency key for this transaction, or says what is known about it.';

-- As before, with the events of the request. The function of version 1 is renamed, as for a claim.
ALTER FUNCTION hapax.complete(text, text, text, integer, jsonb, bytea) RENAME TO complete_1;
CREATE FUNCTION hapax.complete(
    tenant text, operation text, key text, status integer,
    headers jsonb DEFAULT '[]', body bytea DEFAULT '', events jsonb DEFAULT '[]'
) RETURNS interval
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    claimed jsonb := hapax.open_claim(tenant, operation, key);
    stands interval := make_interval(secs => (claimed ->> 'retention')::double precision);
    print bytea := decode(claimed ->> 'fingerprint', 'hex');
    block bytea := hapax.header_block(coalesce(headers, '[]'));
    at timestamptz := clock_timestamp();
BEGIN
    -- Every role can write the setting of the claim. A transaction that has claimed the key holds its
    -- lock, so it gets the lock again.
    IF NOT (
        coalesce(
            octet_length(print) = 32 AND claimed ->> 'on_expired' IN ('new', 'gone')
            AND stands BETWEEN '0' AND '720 hours', false)
        AND pg_try_advisory_xact_lock(hapax.key_lock(tenant, operation, key))
    ) THEN
        RAISE 'the setting hapax.claim was not written by a claim' USING ERRCODE = 'HX002';
    ELSIF NOT coalesce(status BETWEEN 200 AND 599, false) THEN
        RAISE 'the status is not between 200 and 599' USING ERRCODE = 'HX001';
    ELSIF greatest(octet_length(body), octet_length(block)) > 4194304 THEN
        RAISE 'the answer is longer than 4194304 bytes' USING ERRCODE = 'HX001';
    END IF;
    IF events <> '[]' THEN
        -- While the claim is open, so that they belong to it.
        PERFORM hapax.emit_events(events, NULL, NULL);
    END IF;
    INSERT INTO hapax.idempotency_key AS old
        (tenant, operation, key, fingerprint, state, response_status, response_headers,
         response_body, on_expired, created_at, completed_at, expires_at, resource_id)
    VALUES
        (complete.tenant, complete.operation, complete.key, print,
         CASE WHEN complete.status >= 500 THEN 'failed' ELSE 'completed' END,
         complete.status, block, coalesce(complete.body, ''), claimed ->> 'on_expired', now(), at,
         at + stands, hapax.resource_id(complete.status, coalesce(complete.headers, '[]')))
    ON CONFLICT (key, operation, tenant) DO UPDATE SET
        fingerprint = excluded.fingerprint,
        state = excluded.state,
        epoch = old.epoch + 1,
        lease_until = NULL,
        owner = NULL,
        recovery_point = NULL,
        recovery_data = NULL,
        request = NULL,
        response_status = excluded.response_status,
        response_headers = excluded.response_headers,
        response_body = excluded.response_body,
        resource_id = excluded.resource_id,
        on_expired = excluded.on_expired,
        created_at = excluded.created_at,
        completed_at = excluded.completed_at,
        expires_at = excluded.expires_at
    WHERE old.state = 'tombstone'
       OR old.state <> 'in_progress' AND old.expires_at <= excluded.completed_at;
    IF NOT FOUND THEN
        RAISE 'the key has a row already, which was written past its lock' USING
            ERRCODE = 'unique_violation', HINT = 'Roll back and claim again.';
    END IF;
    PERFORM set_config('hapax.claim', '', true);
    RETURN stands;
END
$$;
COMMENT ON FUNCTION hapax.complete IS
    'Stores the answer under the key that this transaction claimed.';
CREATE OR REPLACE FUNCTION hapax.complete_1(
    tenant text, operation text, key text, status integer,
    headers jsonb DEFAULT '[]', body bytea DEFAULT ''
) RETURNS interval
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN hapax.complete(tenant, operation, key, status, headers, body);
END
$$;
COMMENT ON FUNCTION hapax.claim_1 IS 'hapax.claim of version 1 of the SQL contract.';
COMMENT ON FUNCTION hapax.complete_1 IS 'hapax.complete of version 1 of the SQL contract.';

-- A lease as an interval without days, which would depend on the time zone of the session.
CREATE FUNCTION hapax.lease_of(lease interval) RETURNS interval
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT coalesce(lease BETWEEN '0' AND '24 hours', false) THEN
        RAISE 'the lease is not between 0 and 24 hours' USING ERRCODE = 'HX001';
    END IF;
    RETURN make_interval(secs => extract(epoch FROM lease)::double precision);
END
$$;

-- Enters a key of phased mode, in the row that the store writes too. The caller commits at once: the
-- locks of the entry last until then. Like the store, it takes the lock of the key only to write a
-- new row, and none to resume.
CREATE FUNCTION hapax.enter(
    tenant text, operation text, key text, fingerprint bytea,
    lease interval DEFAULT '30 seconds', retention interval DEFAULT '24 hours',
    on_expired text DEFAULT 'new', owner text DEFAULT NULL,
    OUT outcome text, OUT epoch bigint, OUT phase text, OUT data jsonb, OUT status integer,
    OUT headers jsonb, OUT body bytea, OUT fresh_for interval, OUT retry_after_ms integer,
    OUT entered_at timestamptz
)
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    term interval := hapax.lease_of(lease);
    at timestamptz;
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
    ELSIF owner IS NOT NULL AND NOT hapax.is_name(owner) THEN
        RAISE 'the owner is not 1 to 255 bytes long' USING ERRCODE = 'HX001';
    ELSIF hapax.open_claim() IS NOT NULL THEN
        RAISE 'a claim is open in this transaction already' USING
            ERRCODE = 'HX003', HINT = 'Enter a key in a separate transaction, and commit it.';
    END IF;
    LOOP
        SELECT known.outcome, known.status, known.headers, known.body, known.fresh_for
        INTO outcome, status, headers, body, fresh_for
        FROM hapax.evaluate_claim(
            enter.tenant, enter.operation, enter.key, enter.fingerprint, enter.on_expired) AS known;
        -- Milliseconds, because the store reads times in milliseconds and compares this one.
        at := date_trunc('milliseconds', clock_timestamp());
        IF outcome = 'in_progress' THEN
            -- A row that its owner is writing is not waited for, because that owner is alive.
            WITH abandoned AS MATERIALIZED (
                SELECT 1
                FROM hapax.idempotency_key AS row
                WHERE row.key = enter.key AND row.operation = enter.operation
                  AND row.tenant = enter.tenant AND row.fingerprint = enter.fingerprint
                  AND row.state = 'in_progress' AND coalesce(row.lease_until, row.created_at) <= at
                FOR UPDATE SKIP LOCKED
            )
            UPDATE hapax.idempotency_key AS row SET
                epoch = row.epoch + 1,
                lease_until = at + term,
                owner = enter.owner
            FROM abandoned
            WHERE row.key = enter.key AND row.operation = enter.operation
              AND row.tenant = enter.tenant
            RETURNING row.epoch, row.recovery_point, row.recovery_data, row.created_at
            INTO epoch, phase, data, entered_at;
            IF FOUND THEN
                outcome := 'resumed';
            END IF;
        END IF;
        EXIT WHEN outcome IS NOT NULL;
        IF locked = 'other' THEN
            -- The row was read once more, as in claim.
            outcome := 'mismatch';
            EXIT;
        END IF;
        locked := hapax.lock_claim(tenant, operation, key, fingerprint, on_expired);
        CONTINUE WHEN locked IN ('known', 'other');
        IF locked = 'busy' THEN
            outcome := 'in_progress';
            EXIT;
        END IF;
        INSERT INTO hapax.idempotency_key AS old
            (tenant, operation, key, fingerprint, state, lease_until, on_expired, created_at,
             expires_at, owner)
        VALUES
            (enter.tenant, enter.operation, enter.key, enter.fingerprint, 'in_progress', at + term,
             enter.on_expired, at, at + make_interval(secs =>
                 extract(epoch FROM least(enter.retention, '720 hours'))::double precision),
             enter.owner)
        -- The epoch continues, so that an owner of the old row is not mistaken for the new one.
        ON CONFLICT (key, operation, tenant) DO UPDATE SET
            fingerprint = excluded.fingerprint,
            state = excluded.state,
            epoch = old.epoch + 1,
            entered_epoch = old.epoch + 1,
            lease_until = excluded.lease_until,
            owner = excluded.owner,
            recovery_point = NULL,
            recovery_data = NULL,
            request = NULL,
            response_status = NULL,
            response_headers = NULL,
            response_body = NULL,
            resource_id = NULL,
            on_expired = excluded.on_expired,
            created_at = excluded.created_at,
            completed_at = NULL,
            expires_at = excluded.expires_at
        -- Not the time of entry, which is in milliseconds and may be before the end of a row that
        -- has just expired.
        WHERE old.state = 'tombstone'
           OR old.state <> 'in_progress' AND old.expires_at <= clock_timestamp()
        RETURNING old.epoch, old.created_at INTO epoch, entered_at;
        IF NOT FOUND THEN
            RAISE 'the key has a row already, which was written past its lock' USING
                ERRCODE = 'unique_violation', HINT = 'Roll back and enter again.';
        END IF;
        outcome := 'entered';
        EXIT;
    END LOOP;
    IF outcome = 'in_progress' THEN
        retry_after_ms := 1000;
    END IF;
END
$$;
COMMENT ON FUNCTION hapax.enter IS
    'Enters an idempotency key of phased mode with a lease, or says what is known about it.';

-- Checks the arguments that name an owner.
CREATE FUNCTION hapax.check_owner(tenant text, operation text, key text, epoch bigint)
    RETURNS void
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM hapax.check_scope(tenant, operation, key);
    IF epoch IS NULL THEN
        RAISE 'the epoch is missing' USING
            ERRCODE = 'HX001', HINT = 'It is the epoch that hapax.enter has returned.';
    END IF;
END
$$;

-- Fails unless the statement before has found the row of its owner.
CREATE FUNCTION hapax.require_owner(is_owner boolean) RETURNS void
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT is_owner THEN
        RAISE 'the key has another owner, or none' USING
            ERRCODE = 'HX005', HINT = 'Roll back. Enter again to find out what is known.';
    END IF;
END
$$;

CREATE FUNCTION hapax.phase(
    tenant text, operation text, key text, epoch bigint, name text, data jsonb DEFAULT NULL,
    events jsonb DEFAULT '[]', entered_at timestamptz DEFAULT NULL
) RETURNS void
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    PERFORM hapax.check_owner(tenant, operation, key, epoch);
    IF NOT hapax.is_name(name) THEN
        RAISE 'the name of the phase is not 1 to 255 bytes long' USING ERRCODE = 'HX001';
    ELSIF octet_length(data::text) > 1048576 THEN
        RAISE 'the data of the phase is longer than 1048576 bytes' USING ERRCODE = 'HX001';
    END IF;
    IF events <> '[]' THEN
        PERFORM hapax.emit_events(events, tenant, key);
    END IF;
    UPDATE hapax.idempotency_key AS row SET
        recovery_point = phase.name,
        recovery_data = phase.data
    WHERE row.key = phase.key AND row.operation = phase.operation AND row.tenant = phase.tenant
      AND row.epoch = phase.epoch AND row.created_at = coalesce(phase.entered_at, row.created_at)
      AND row.state = 'in_progress';
    PERFORM hapax.require_owner(FOUND);
END
$$;
COMMENT ON FUNCTION hapax.phase IS
    'Records a phase in the transaction of its rows, for the owner of the key only.';

CREATE FUNCTION hapax.finish(
    tenant text, operation text, key text, epoch bigint, status integer,
    headers jsonb DEFAULT '[]', body bytea DEFAULT '', events jsonb DEFAULT '[]',
    entered_at timestamptz DEFAULT NULL
) RETURNS interval
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    block bytea := hapax.header_block(coalesce(headers, '[]'));
    at timestamptz := clock_timestamp();
    stands interval;
BEGIN
    PERFORM hapax.check_owner(tenant, operation, key, epoch);
    IF NOT coalesce(status BETWEEN 200 AND 599, false) THEN
        RAISE 'the status is not between 200 and 599' USING ERRCODE = 'HX001';
    ELSIF greatest(octet_length(body), octet_length(block)) > 4194304 THEN
        RAISE 'the answer is longer than 4194304 bytes' USING ERRCODE = 'HX001';
    END IF;
    IF events <> '[]' THEN
        PERFORM hapax.emit_events(events, tenant, key);
    END IF;
    UPDATE hapax.idempotency_key AS row SET
        state = CASE WHEN finish.status >= 500 THEN 'failed' ELSE 'completed' END,
        lease_until = NULL,
        owner = NULL,
        recovery_data = NULL,
        request = NULL,
        response_status = finish.status,
        response_headers = block,
        response_body = coalesce(finish.body, ''),
        resource_id = hapax.resource_id(finish.status, coalesce(finish.headers, '[]')),
        completed_at = at,
        expires_at = at + make_interval(secs =>
            extract(epoch FROM row.expires_at - row.created_at)::double precision)
    WHERE row.key = finish.key AND row.operation = finish.operation
      AND row.tenant = finish.tenant AND row.epoch = finish.epoch
      AND row.created_at = coalesce(finish.entered_at, row.created_at)
      AND row.state = 'in_progress'
    RETURNING make_interval(secs => extract(epoch FROM row.expires_at - at)::double precision)
    INTO stands;
    PERFORM hapax.require_owner(FOUND);
    RETURN stands;
END
$$;
COMMENT ON FUNCTION hapax.finish IS
    'Stores the answer of a phased request, for the owner of the key only.';

CREATE FUNCTION hapax.nothing_happened(
    tenant text, operation text, key text, epoch bigint, entered_at timestamptz DEFAULT NULL
) RETURNS void
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    is_first boolean;
BEGIN
    PERFORM hapax.check_owner(tenant, operation, key, epoch);
    SELECT row.epoch = coalesce(row.entered_epoch, 1) INTO is_first
    FROM hapax.idempotency_key AS row
    WHERE row.key = nothing_happened.key AND row.operation = nothing_happened.operation
      AND row.tenant = nothing_happened.tenant AND row.epoch = nothing_happened.epoch
      AND row.created_at = coalesce(nothing_happened.entered_at, row.created_at)
      AND row.state = 'in_progress'
    FOR UPDATE;
    PERFORM hapax.require_owner(FOUND);
    IF NOT is_first THEN
        RAISE 'the key had an earlier owner, whose call may still arrive' USING
            ERRCODE = 'HX007',
            HINT = 'Give the key back with a lease of 0; a retry calls under the same provider key.';
    END IF;
    DELETE FROM hapax.idempotency_key AS row
    WHERE row.key = nothing_happened.key AND row.operation = nothing_happened.operation
      AND row.tenant = nothing_happened.tenant;
END
$$;
COMMENT ON FUNCTION hapax.nothing_happened IS
    'Frees a key whose request has had no effect outside, for its first owner only.';

CREATE FUNCTION hapax.renew(
    tenant text, operation text, key text, epoch bigint, lease interval DEFAULT '30 seconds',
    entered_at timestamptz DEFAULT NULL
) RETURNS timestamptz
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    term interval := hapax.lease_of(lease);
    until timestamptz;
BEGIN
    PERFORM hapax.check_owner(tenant, operation, key, epoch);
    UPDATE hapax.idempotency_key AS row SET
        -- Milliseconds, as in `enter`, so that a lease of 0 is over at once.
        lease_until = date_trunc('milliseconds', clock_timestamp()) + term
    WHERE row.key = renew.key AND row.operation = renew.operation AND row.tenant = renew.tenant
      AND row.epoch = renew.epoch AND row.created_at = coalesce(renew.entered_at, row.created_at)
      AND row.state = 'in_progress'
    RETURNING row.lease_until INTO until;
    PERFORM hapax.require_owner(FOUND);
    RETURN until;
END
$$;
COMMENT ON FUNCTION hapax.renew IS
    'Renews the lease of a key for its owner; a lease of 0 gives the key back.';

CREATE FUNCTION hapax.take_over(
    tenant text, operation text, key text, epoch bigint, lease interval DEFAULT '30 seconds',
    owner text DEFAULT NULL, entered_at timestamptz DEFAULT NULL
) RETURNS bigint
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    term interval := hapax.lease_of(lease);
    at timestamptz := clock_timestamp();
    next_epoch bigint;
BEGIN
    PERFORM hapax.check_owner(tenant, operation, key, epoch);
    IF owner IS NOT NULL AND NOT hapax.is_name(owner) THEN
        RAISE 'the owner is not 1 to 255 bytes long' USING ERRCODE = 'HX001';
    END IF;
    -- As in enter: a row that its owner is writing is not waited for.
    WITH abandoned AS MATERIALIZED (
        SELECT 1
        FROM hapax.idempotency_key AS row
        WHERE row.key = take_over.key AND row.operation = take_over.operation
          AND row.tenant = take_over.tenant AND row.epoch = take_over.epoch
          AND row.created_at = coalesce(take_over.entered_at, row.created_at)
          AND row.state = 'in_progress' AND coalesce(row.lease_until, row.created_at) <= at
        FOR UPDATE SKIP LOCKED
    )
    UPDATE hapax.idempotency_key AS row SET
        epoch = row.epoch + 1,
        lease_until = at + term,
        owner = take_over.owner
    FROM abandoned
    WHERE row.key = take_over.key AND row.operation = take_over.operation
      AND row.tenant = take_over.tenant
    RETURNING row.epoch INTO next_epoch;
    IF NOT FOUND THEN
        PERFORM hapax.require_owner(EXISTS (
            SELECT
            FROM hapax.idempotency_key AS row
            WHERE row.key = take_over.key AND row.operation = take_over.operation
              AND row.tenant = take_over.tenant AND row.epoch = take_over.epoch
              AND row.created_at = coalesce(take_over.entered_at, row.created_at)
              AND row.state = 'in_progress'
        ));
    END IF;
    RETURN next_epoch;
END
$$;
COMMENT ON FUNCTION hapax.take_over IS
    'Takes a key from an owner whose lease is over, and returns the new epoch; null before that.';

-- The key to send to a remote system for a step: the same for every attempt and every owner, as
-- `hapax::phases::Ownership::provider_key` computes it. A UUID of version 8.
CREATE FUNCTION hapax.provider_key(
    tenant text, operation text, key text, epoch bigint, step text,
    entered_at timestamptz DEFAULT NULL
) RETURNS text
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    hash bytea;
BEGIN
    PERFORM hapax.check_owner(tenant, operation, key, epoch);
    IF step IS NULL THEN
        RAISE 'the step is missing' USING ERRCODE = 'HX001';
    END IF;
    SELECT sha256('\x01'::bytea || (
        SELECT string_agg(int8send(octet_length(part)::bigint) || part, '' ORDER BY place)
        FROM unnest(ARRAY[
            convert_to(row.tenant, 'UTF8'), convert_to(row.operation, 'UTF8'),
            convert_to(row.key, 'UTF8'), row.fingerprint,
            int8send((extract(epoch FROM row.created_at) * 1000)::bigint),
            convert_to(provider_key.step, 'UTF8')
        ]) WITH ORDINALITY AS parts (part, place)
    )) INTO hash
    FROM hapax.idempotency_key AS row
    WHERE row.key = provider_key.key AND row.operation = provider_key.operation
      AND row.tenant = provider_key.tenant AND row.epoch = provider_key.epoch
      AND row.created_at = coalesce(provider_key.entered_at, row.created_at)
      AND row.state = 'in_progress';
    PERFORM hapax.require_owner(FOUND);
    hash := set_byte(hash, 6, get_byte(hash, 6) & 15 | 128);
    hash := set_byte(hash, 8, get_byte(hash, 8) & 63 | 128);
    RETURN encode(substr(hash, 1, 16), 'hex')::uuid::text;
END
$$;
COMMENT ON FUNCTION hapax.provider_key IS
    'Returns the key to send to a remote system for a step, the same for every attempt.';

-- The profiles of the HTTP contract, as `hapax_http::Profile` has them.
CREATE FUNCTION hapax.profile(
    name text,
    OUT key_required boolean, OUT key_max integer, OUT mismatch_status integer,
    OUT in_progress_status integer, OUT missing_status integer, OUT invalid_status integer,
    OUT gone_status integer, OUT min_retention interval, OUT default_retention interval,
    OUT fingerprint_mode text, OUT stores text, OUT marks_replay boolean,
    OUT requires_key_for_post boolean, OUT needs_uuid_v7 boolean, OUT releases_failures boolean,
    OUT fails_closed boolean, OUT refuses_expired boolean, OUT says_retry_after boolean,
    OUT missing_code text, OUT mismatch_code text, OUT in_progress_code text,
    OUT expired_code text
)
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT coalesce(
        name IN ('hapax', 'ietf', 'stripe', 'acp', 'ucp', 'adcp', 'iceberg'), false)
    THEN
        RAISE 'there is no such profile' USING
            ERRCODE = 'HX001',
            HINT = 'The profiles are hapax, ietf, stripe, acp, ucp, adcp and iceberg.';
    END IF;
    key_required := name <> 'iceberg';
    key_max := 255;
    mismatch_status := CASE
        WHEN name IN ('ietf', 'acp') THEN 422
        WHEN name = 'stripe' THEN 400
        ELSE 409
    END;
    in_progress_status := 409;
    missing_status := 400;
    invalid_status := 400;
    gone_status := 410;
    min_retention := CASE WHEN name IN ('acp', 'ucp') THEN '24 hours' ELSE '0' END;
    default_retention := '24 hours';
    fingerprint_mode := CASE
        WHEN name IN ('acp', 'adcp') THEN 'json-semantic'
        WHEN name = 'ucp' THEN 'raw'
        ELSE 'json'
    END;
    stores := CASE WHEN name = 'adcp' THEN 'successes' ELSE 'decided' END;
    marks_replay := name IN ('stripe', 'acp');
    requires_key_for_post := name = 'acp';
    needs_uuid_v7 := name = 'iceberg';
    releases_failures := name IN ('acp', 'adcp');
    fails_closed := name = 'ucp';
    refuses_expired := name = 'adcp';
    says_retry_after := name = 'adcp';
    missing_code := CASE name WHEN 'acp' THEN 'idempotency_key_required' END;
    mismatch_code := CASE name
        WHEN 'acp' THEN 'idempotency_conflict'
        WHEN 'adcp' THEN 'IDEMPOTENCY_CONFLICT'
    END;
    in_progress_code := CASE name
        WHEN 'acp' THEN 'idempotency_in_flight'
        WHEN 'adcp' THEN 'IDEMPOTENCY_IN_FLIGHT'
    END;
    expired_code := CASE name WHEN 'adcp' THEN 'IDEMPOTENCY_EXPIRED' END;
END
$$;
COMMENT ON FUNCTION hapax.profile IS 'Returns the rules of a profile of the HTTP contract.';

-- The same functions with the privileges of their owner, for roles that may use no table. They are
-- copies of the functions above, so that a call costs the same and arguments cannot differ.
CREATE SCHEMA hapax_api;
COMMENT ON SCHEMA hapax_api IS
    'The functions of the SQL contract, for roles without privileges on the tables of Hapax.';
DO $$
DECLARE
    owner name := (
        SELECT pg_get_userbyid(relowner) FROM pg_class
        WHERE oid = 'hapax.idempotency_key'::regclass
    );
    copied record;
BEGIN
    FOR copied IN
        SELECT pg_get_functiondef(oid) AS definition,
               format('hapax_api.%I(%s)', proname, pg_get_function_identity_arguments(oid))
                   AS signature,
               obj_description(oid, 'pg_proc') AS comment
        -- By name, which fails if there is another function of the name: it may be any role's.
        FROM pg_proc
        WHERE oid = ANY ('{
            hapax.contract_version, hapax.profile, hapax.claim, hapax.complete, hapax.release,
            hapax.emit, hapax.emit_bytes, hapax.emit_many, hapax.accept, hapax.processed,
            hapax.enter, hapax.phase, hapax.finish, hapax.nothing_happened, hapax.renew,
            hapax.take_over, hapax.provider_key}'::regproc[])
    LOOP
        EXECUTE regexp_replace(
            copied.definition, '^CREATE OR REPLACE FUNCTION hapax\.',
            'CREATE FUNCTION hapax_api.');
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER', copied.signature);
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', copied.signature);
        EXECUTE format('COMMENT ON FUNCTION %s IS %L', copied.signature, copied.comment);
        -- Functions of a superuser would run with all privileges, so they get the owner of the
        -- tables, whose privileges they need.
        IF current_setting('is_superuser') = 'on' THEN
            EXECUTE format('ALTER FUNCTION %s OWNER TO %I', copied.signature, owner);
        END IF;
    END LOOP;
    IF current_setting('is_superuser') = 'on' THEN
        EXECUTE format('ALTER SCHEMA hapax_api OWNER TO %I', owner);
    END IF;
END
$$;
