-- SQL contract: claim, complete, release, emit and accept as functions, for services in any language.
-- They run in the transaction of the caller and behave as the store does, so that a service that
-- calls them and a service that uses the store can share keys, outbox and inbox.
--
-- Between two calls, the only state is the advisory lock of the key and the transaction-local setting
-- `hapax.claim`, which names the claimed key. Both end with the transaction, or with the savepoint in
-- which they were set, so a pooler cannot pass them on to another client.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Whether a tenant, operation, message id or consumer is valid: 1 to 255 bytes.
CREATE FUNCTION hapax.is_name(name text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN coalesce(octet_length(name) BETWEEN 1 AND 255, false);

-- Whether a text contains control characters, which no header may contain.
CREATE FUNCTION hapax.has_control(words text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN words COLLATE "C" ~ '[\u0001-\u001f\u007f-\u009f]';

CREATE FUNCTION hapax.check_scope(tenant text, operation text, key text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT hapax.is_name(tenant) THEN
        RAISE 'the tenant is not 1 to 255 bytes long' USING ERRCODE = 'HX001';
    ELSIF NOT hapax.is_name(operation) THEN
        RAISE 'the operation is not 1 to 255 bytes long' USING ERRCODE = 'HX001';
    ELSIF NOT hapax.is_name(key) OR key COLLATE "C" ~ '[^ -~]' THEN
        RAISE 'the key is not 1 to 255 bytes of visible ASCII' USING ERRCODE = 'HX001';
    END IF;
END
$$;

-- The open claim of this transaction, or null.
CREATE FUNCTION hapax.open_claim() RETURNS jsonb
    LANGUAGE sql STABLE
    RETURN nullif(current_setting('hapax.claim', true), '')::jsonb;

-- The open claim of this transaction, which must be a claim of this key.
CREATE FUNCTION hapax.open_claim(tenant text, operation text, key text) RETURNS jsonb
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    claimed jsonb := hapax.open_claim();
BEGIN
    IF claimed IS NULL THEN
        RAISE 'no claim is open in this transaction' USING
            ERRCODE = 'HX002',
            HINT = 'Claim the key in the same transaction, before any savepoint that is rolled '
                'back, and go on only when the outcome is open.';
    ELSIF claimed ->> 'tenant' IS DISTINCT FROM tenant
        OR claimed ->> 'operation' IS DISTINCT FROM operation
        OR claimed ->> 'key' IS DISTINCT FROM key
    THEN
        RAISE 'the claim that is open in this transaction is of another key' USING
            ERRCODE = 'HX002',
            HINT = 'Complete or release the key that was claimed.';
    END IF;
    RETURN claimed;
END
$$;

-- A block of `name: value` lines as an array of pairs. Values are read as Latin-1, as WSGI, ASGI
-- and Node do: every byte is one character, and none is lost.
CREATE FUNCTION hapax.header_pairs(block bytea) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (
        SELECT coalesce(
            jsonb_agg(jsonb_build_array(
                left(line, strpos(line, ': ') - 1), substr(line, strpos(line, ': ') + 2)
            ) ORDER BY place),
            '[]')
        FROM string_to_table(convert_from(block, 'LATIN1'), E'\r\n')
             WITH ORDINALITY AS lines (line, place)
        WHERE line <> ''
    );

-- An array of pairs as a block, without headers that concern only one exchange.
CREATE FUNCTION hapax.header_block(pairs jsonb) RETURNS bytea
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    block bytea;
    wrong jsonb;
    exchange text[] := ARRAY['set-cookie', 'date', 'server', 'connection', 'keep-alive',
        'proxy-connection', 'proxy-authenticate', 'proxy-authorization', 'te', 'trailer',
        'upgrade', 'content-length', 'transfer-encoding', 'x-request-id', 'idempotency-key',
        'idempotency-status', 'idempotent-replayed', 'hapax-encrypted-under'];
BEGIN
    IF jsonb_typeof(pairs) IS DISTINCT FROM 'array' THEN
        RAISE 'headers are not an array of [name, value] pairs' USING ERRCODE = 'HX001';
    END IF;
    SELECT pair INTO wrong
    FROM jsonb_array_elements(pairs) AS pair
    WHERE CASE WHEN jsonb_typeof(pair) = 'array' THEN
            jsonb_array_length(pair) <> 2
            OR jsonb_typeof(pair -> 0) <> 'string' OR jsonb_typeof(pair -> 1) <> 'string'
            OR (pair ->> 0) COLLATE "C" !~ '^[!#$%&''*+.^_`|~0-9A-Za-z-]+$'
            OR (pair ->> 1) COLLATE "C" ~ '[\u0001-\u0008\u000a-\u001f\u007f]|[^\u0001-\u00ff]'
        ELSE true END
    LIMIT 1;
    IF FOUND THEN
        RAISE 'a header is not a [name, value] pair that HTTP could carry' USING
            ERRCODE = 'HX001',
            DETAIL = left(wrong::text, 200),
            HINT = 'A value is Latin-1, without control characters.';
    END IF;
    -- Headers named by `Connection` are hop-by-hop too.
    SELECT exchange || array_agg(lower(trim(named))) INTO exchange
    FROM jsonb_array_elements(pairs) AS pair,
         string_to_table(pair ->> 1, ',') AS named
    WHERE lower(pair ->> 0) = 'connection';
    SELECT string_agg(
        convert_to(lower(pair ->> 0) || ': ' || (pair ->> 1) || E'\r\n', 'LATIN1'), '' ORDER BY place)
    INTO block
    FROM jsonb_array_elements(pairs) WITH ORDINALITY AS every (pair, place)
    WHERE lower(pair ->> 0) <> ALL (exchange);
    RETURN coalesce(block, '');
END
$$;

-- Outcome of a claim of a known key; null if the key is free. Expiry is checked first, then the
-- fingerprint, then the state, by the clock of the database. A key does not expire while a saga
-- that was started under it is running.
CREATE FUNCTION hapax.evaluate_claim(
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
               ELSE hapax.effective_expiry(row.tenant, row.operation, row.key, row.expires_at, at)
           END AS expires_at
    INTO stored
    FROM hapax.idempotency_key AS row
    WHERE row.key = evaluate_claim.key AND row.operation = evaluate_claim.operation AND row.tenant = evaluate_claim.tenant;
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

-- Acquires the advisory lock of a key: true with the lock, false if another transaction holds it,
-- null if the key is known. The block is a savepoint: the lock is kept only if the result is true.
CREATE FUNCTION hapax.lock_key(
    tenant text, operation text, key text, fingerprint bytea, on_expired text
) RETURNS boolean
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(hapax.key_lock(tenant, operation, key)) THEN
        RETURN false;
    END IF;
    -- A separate statement, so that it sees what the last holder of the lock committed.
    IF (hapax.evaluate_claim(tenant, operation, key, fingerprint, on_expired)).outcome IS NOT NULL THEN
        RAISE SQLSTATE 'HX000';
    END IF;
    RETURN true;
EXCEPTION WHEN SQLSTATE 'HX000' THEN
    RETURN NULL;
END
$$;

-- Fails with 40001 if the key has a row that the snapshot of this transaction is too old to see. A
-- unique index checks rows that a snapshot does not show, so a row is inserted and rolled back.
CREATE FUNCTION hapax.probe(tenant text, operation text, key text) RETURNS void
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO hapax.idempotency_key
        (tenant, operation, key, fingerprint, state, created_at, expires_at)
    VALUES (probe.tenant, probe.operation, probe.key, '', 'tombstone', now(), now())
    ON CONFLICT (key, operation, tenant) DO NOTHING;
    RAISE SQLSTATE 'HX000';
EXCEPTION WHEN SQLSTATE 'HX000' THEN
    RETURN;
END
$$;

CREATE FUNCTION hapax.claim(
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
    taken boolean;
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
            taken := hapax.lock_key(tenant, operation, key, fingerprint, on_expired);
            CONTINUE WHEN taken IS NULL;
            EXIT WHEN taken;
            outcome := 'in_progress';
        END IF;
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
COMMENT ON FUNCTION hapax.claim IS
    'Takes an idempotency key for this transaction, or says what is known about it.';

-- Id of the resource that the response to a request names: the last segment of the path in the
-- header `Location` of a success. It is null if there is none, or if it is longer than 255 bytes.
CREATE FUNCTION hapax.resource_id(status integer, pairs jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (
        SELECT substring(
            regexp_replace(location, '^[^/?#]*://[^/?#]*|[?#].*$', '', 'g') COLLATE "C"
            FROM '(?:^|/)([!-.0-~]{1,255})/*$'
        )
        FROM (
            SELECT pair ->> 1 AS location
            FROM jsonb_array_elements(pairs) WITH ORDINALITY AS every (pair, place)
            WHERE lower(pair ->> 0) = 'location'
            ORDER BY place
            LIMIT 1
        ) AS header
        WHERE status < 300
    );

CREATE FUNCTION hapax.complete(
    tenant text, operation text, key text, status integer,
    headers jsonb DEFAULT '[]', body bytea DEFAULT ''
) RETURNS interval
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    claimed jsonb := hapax.open_claim(tenant, operation, key);
    stands interval := make_interval(secs => (claimed ->> 'retention')::double precision);
    block bytea := hapax.header_block(coalesce(headers, '[]'));
    at timestamptz := clock_timestamp();
BEGIN
    IF NOT coalesce(status BETWEEN 200 AND 599, false) THEN
        RAISE 'the status is not between 200 and 599' USING ERRCODE = 'HX001';
    ELSIF greatest(octet_length(body), octet_length(block)) > 4194304 THEN
        RAISE 'the answer is longer than 4194304 bytes' USING ERRCODE = 'HX001';
    END IF;
    INSERT INTO hapax.idempotency_key AS old
        (tenant, operation, key, fingerprint, state, response_status, response_headers,
         response_body, on_expired, created_at, completed_at, expires_at, resource_id)
    VALUES
        (complete.tenant, complete.operation, complete.key,
         decode(claimed ->> 'fingerprint', 'hex'),
         CASE WHEN complete.status >= 500 THEN 'failed' ELSE 'completed' END,
         complete.status, block, coalesce(complete.body, ''), claimed ->> 'on_expired', now(), at,
         at + stands, hapax.resource_id(complete.status, coalesce(complete.headers, '[]')))
    ON CONFLICT (key, operation, tenant) DO UPDATE SET
        fingerprint = excluded.fingerprint,
        state = excluded.state,
        epoch = old.epoch + 1,
        lease_until = NULL,
        recovery_point = NULL,
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

CREATE FUNCTION hapax.release(tenant text, operation text, key text) RETURNS void
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM hapax.open_claim(tenant, operation, key);
    PERFORM set_config('hapax.claim', '', true);
END
$$;
COMMENT ON FUNCTION hapax.release IS
    'Lets the claimed key go without an answer; it is free when this transaction ends.';

-- Number of the advisory lock that keeps ordered events of one aggregate in order. The seed differs
-- from that of keys, so that an aggregate never waits for a key.
CREATE FUNCTION hapax.aggregate_lock(aggregate_type text, aggregate_id text) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN hashtextextended(aggregate_type || E'\n' || aggregate_id, 1);

-- A UUID v7 of the given time: 48 bits of milliseconds, followed by the rest of a random v4 UUID,
-- whose version bits are changed from 4 to 7.
CREATE FUNCTION hapax.event_id(at timestamptz) RETURNS uuid
    LANGUAGE sql VOLATILE PARALLEL SAFE
    RETURN encode(set_bit(set_bit(overlay(
        uuid_send(gen_random_uuid())
        PLACING substring(int8send((extract(epoch FROM at) * 1000)::bigint) FROM 3) FROM 1 FOR 6
    ), 52, 1), 53, 1), 'hex')::uuid;

CREATE FUNCTION hapax.is_json(words text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN words::json IS NOT NULL;
EXCEPTION WHEN invalid_text_representation OR statement_too_complex THEN
    RETURN false;
END
$$;

-- Headers of an event: those of the open claim, overridden by those of the emitter.
CREATE FUNCTION hapax.event_headers(own jsonb) RETURNS jsonb
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    claimed_key text := hapax.open_claim() ->> 'key';
    every jsonb := coalesce(own, '{}');
BEGIN
    IF jsonb_typeof(every) <> 'object' THEN
        RAISE 'headers are not an object of texts' USING ERRCODE = 'HX004';
    ELSIF every ? 'content-type' THEN
        RAISE 'header content-type is the payload''s own' USING ERRCODE = 'HX004';
    ELSIF every ? 'hapax-encrypted-under' THEN
        RAISE 'header hapax-encrypted-under is the keyring''s own' USING ERRCODE = 'HX004';
    END IF;
    IF every <> '{}' AND EXISTS (
        SELECT FROM jsonb_each(every) AS header (name, value)
        WHERE jsonb_typeof(value) <> 'string' OR name = ''
           OR octet_length(name) + octet_length(value #>> '{}') > 4096
           OR hapax.has_control(name) OR hapax.has_control(value #>> '{}')
    ) THEN
        RAISE 'a header is no text, longer than 4096 bytes, or holds a control character' USING
            ERRCODE = 'HX004';
    END IF;
    IF claimed_key IS NOT NULL THEN
        every := jsonb_build_object('idempotency_key_hash',
            left(encode(sha256(convert_to(claimed_key, 'UTF8')), 'hex'), 16)) || every;
    END IF;
    IF (SELECT count(*) FROM jsonb_object_keys(every)) > 64 THEN
        RAISE 'there are more than 64 headers' USING ERRCODE = 'HX004';
    END IF;
    RETURN every;
END
$$;

-- Appends an event whose payload is in the text form of the column.
CREATE FUNCTION hapax.append(
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

CREATE FUNCTION hapax.emit(
    type text, payload text, aggregate_type text DEFAULT NULL, aggregate_id text DEFAULT NULL,
    sequence bigint DEFAULT NULL, headers jsonb DEFAULT '{}', tenant text DEFAULT NULL,
    available_at timestamptz DEFAULT NULL, ordered boolean DEFAULT false
) RETURNS uuid
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT coalesce(octet_length(payload) <= 1048576, false) THEN
        RAISE 'the payload is missing or longer than 1048576 bytes' USING ERRCODE = 'HX004';
    ELSIF NOT hapax.is_json(payload) THEN
        RAISE 'the payload is not JSON' USING ERRCODE = 'HX004';
    END IF;
    RETURN hapax.append(type, payload, NULL, aggregate_type, aggregate_id, sequence, headers,
        tenant, available_at, ordered);
END
$$;
COMMENT ON FUNCTION hapax.emit IS
    'Adds an event to this transaction: it exists exactly when the transaction commits.';

CREATE FUNCTION hapax.emit_bytes(
    type text, payload bytea, content_type text, aggregate_type text DEFAULT NULL,
    aggregate_id text DEFAULT NULL, sequence bigint DEFAULT NULL, headers jsonb DEFAULT '{}',
    tenant text DEFAULT NULL, available_at timestamptz DEFAULT NULL, ordered boolean DEFAULT false
) RETURNS uuid
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT coalesce(octet_length(payload) <= 1048576, false) THEN
        RAISE 'the payload is missing or longer than 1048576 bytes' USING ERRCODE = 'HX004';
    ELSIF NOT hapax.is_name(content_type) OR hapax.has_control(content_type) THEN
        RAISE 'the content type is not 1 to 255 bytes without control characters' USING
            ERRCODE = 'HX004';
    END IF;
    RETURN hapax.append(type, translate(encode(payload, 'base64'), E'\n', ''), content_type,
        aggregate_type, aggregate_id, sequence, headers, tenant, available_at, ordered);
END
$$;
COMMENT ON FUNCTION hapax.emit_bytes IS
    'The same for a payload that is not JSON.';

CREATE FUNCTION hapax.accept(
    consumer text, message_id text, payload_hash bytea, source text
) RETURNS text
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    known bytea;
BEGIN
    IF NOT (hapax.is_name(consumer) AND hapax.is_name(message_id) AND hapax.is_name(source)) THEN
        RAISE 'the consumer, the message id or the source is not 1 to 255 bytes long' USING
            ERRCODE = 'HX001';
    ELSIF octet_length(payload_hash) IS DISTINCT FROM 32 THEN
        RAISE 'the payload hash is not 32 bytes long' USING
            ERRCODE = 'HX001', HINT = 'It is the SHA-256 of what the message said.';
    END IF;
    LOOP
        INSERT INTO hapax.inbox_message
            (consumer, message_id, source, payload_hash, received_at)
        VALUES
            (accept.consumer, accept.message_id, accept.source, accept.payload_hash,
             clock_timestamp())
        ON CONFLICT (message_id, consumer, source) DO NOTHING;
        IF FOUND THEN
            RETURN 'first';
        END IF;
        SELECT taken.payload_hash INTO known
        FROM hapax.inbox_message AS taken
        WHERE taken.message_id = accept.message_id AND taken.consumer = accept.consumer
          AND taken.source = accept.source;
        -- Not found: the message was purged in between, so it is new.
        IF FOUND THEN
            RETURN CASE WHEN known = payload_hash THEN 'duplicate' ELSE 'mismatch' END;
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION hapax.accept IS
    'Takes a message of a source for a consumer, once, in this transaction.';

CREATE FUNCTION hapax.processed(
    consumer text, message_id text, source text, result text DEFAULT NULL
) RETURNS void
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    IF octet_length(result) > 1024 THEN
        RAISE 'the result is longer than 1024 bytes' USING ERRCODE = 'HX001';
    END IF;
    UPDATE hapax.inbox_message AS taken
    SET processed_at = clock_timestamp(), result = processed.result
    WHERE taken.message_id = processed.message_id AND taken.consumer = processed.consumer
      AND taken.source = processed.source AND taken.processed_at IS NULL;
    IF NOT FOUND THEN
        RAISE 'the message was not accepted, or is recorded as processed already' USING
            ERRCODE = 'HX011', HINT = 'Accept it first, and go on only when it is new.';
    END IF;
END
$$;
COMMENT ON FUNCTION hapax.processed IS
    'Records that the effect of an accepted message was written, and the result.';
