-- Sagas: their state, steps and signals, and the keys that they were started under.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Sagas. A saga is due at `wake_at`, and if a worker holds it, not before the end of its lease.
-- `signals_received` counts the signals received: a worker that releases the saga locks this row and so learns
-- whether a signal arrived meanwhile; a count of the signal rows could be older than the lock.
-- `key` and its scope are those of the request that started the saga, if any.
CREATE TABLE hapax.saga (
    id            text NOT NULL COLLATE "C" PRIMARY KEY,
    name          text NOT NULL COLLATE "C",
    version       bigint NOT NULL,
    tenant        text,
    input         bytea NOT NULL,
    headers       text NOT NULL,
    state         text NOT NULL CHECK (state IN
                      ('running', 'needs_attention', 'completed', 'failed')),
    compensating       boolean NOT NULL DEFAULT false,
    reason_code   text,
    reason_detail text,
    deadline_at   timestamptz NOT NULL,
    epoch         bigint NOT NULL DEFAULT 0,
    lease_until   timestamptz,
    wake_at       timestamptz,
    waiting_for   text,
    signals_received          bigint NOT NULL DEFAULT 0,
    created_at    timestamptz NOT NULL,
    ended_at      timestamptz,
    key_tenant    text,
    key_operation text,
    key           text COLLATE "C"
);
-- Due sagas by kind, so that a worker reads only the kinds that it knows.
CREATE INDEX saga_due ON hapax.saga (name, version, (greatest(wake_at, lease_until)))
    WHERE wake_at IS NOT NULL;
CREATE INDEX saga_state ON hapax.saga (state, id);
CREATE INDEX saga_ended ON hapax.saga (ended_at) WHERE ended_at IS NOT NULL;
-- Sagas that were started around the time of a request.
CREATE INDEX saga_created ON hapax.saga (created_at);
-- Sagas of one tenant by state. A query of one tenant reads no rows of others and cannot infer them
-- from where its page ends.
CREATE INDEX saga_tenant ON hapax.saga (tenant, state, id) WHERE tenant IS NOT NULL;
CREATE INDEX saga_key ON hapax.saga (key, key_operation, key_tenant)
    WHERE ended_at IS NULL AND key IS NOT NULL;

-- Steps that have begun, and their compensations; `place` is the order in which they began.
CREATE TABLE hapax.saga_step (
    saga         text NOT NULL COLLATE "C" REFERENCES hapax.saga (id) ON DELETE CASCADE,
    name         text NOT NULL COLLATE "C",
    direction          text NOT NULL CHECK (direction IN ('forward', 'compensate')),
    place        bigint GENERATED ALWAYS AS IDENTITY,
    state        text NOT NULL CHECK (state IN ('open', 'done', 'refused')),
    provider_key text,
    request      bytea NOT NULL,
    made         bytea NOT NULL,
    error_code   text,
    error_detail text,
    attempts     integer NOT NULL,
    next_at      timestamptz NOT NULL,
    began_at     timestamptz NOT NULL,
    ended_at     timestamptz,
    PRIMARY KEY (saga, name, direction)
);

-- Signals of a saga, one per name.
CREATE TABLE hapax.saga_signal (
    saga        text NOT NULL COLLATE "C" REFERENCES hapax.saga (id) ON DELETE CASCADE,
    name        text NOT NULL COLLATE "C",
    place       bigint GENERATED ALWAYS AS IDENTITY,
    payload     bytea NOT NULL,
    received_at timestamptz NOT NULL,
    PRIMARY KEY (saga, name)
);

-- A running saga that was started under this key, if there is one. Such a key does not expire.
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

-- Expiry of a key at a given time. A key whose retention is over, but which has a running saga, is
-- extended by one minute on every call. Runs as its owner: a role that may claim keys needs no
-- right to read sagas, and learns nothing from this function but the expiry.
CREATE FUNCTION hapax.effective_expiry(
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
