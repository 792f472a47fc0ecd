-- Sagas, their steps, and what they were told.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

-- A saga falls due at `wake_at`, and one that is held once its lease has lapsed besides. `told`
-- counts its signals: whoever gives it back learns from the row itself, which it locks, whether it
-- was told something meanwhile; a count of other rows could be older than that lock.
CREATE TABLE hapax.saga (
    id            text NOT NULL COLLATE "C" PRIMARY KEY,
    name          text NOT NULL COLLATE "C",
    version       bigint NOT NULL,
    tenant        text,
    input         bytea NOT NULL,
    headers       text NOT NULL,
    state         text NOT NULL CHECK (state IN
                      ('running', 'needs_attention', 'completed', 'failed')),
    undoing       boolean NOT NULL DEFAULT false,
    reason_code   text,
    reason_detail text,
    deadline_at   timestamptz NOT NULL,
    epoch         bigint NOT NULL DEFAULT 0,
    lease_until   timestamptz,
    wake_at       timestamptz,
    waiting_for   text,
    told          bigint NOT NULL DEFAULT 0,
    created_at    timestamptz NOT NULL,
    ended_at      timestamptz
);
-- What falls due, kind by kind: a worker never goes through what only others know.
CREATE INDEX saga_due ON hapax.saga (name, version, (greatest(wake_at, lease_until)))
    WHERE wake_at IS NOT NULL;
CREATE INDEX saga_state ON hapax.saga (state, id);
CREATE INDEX saga_ended ON hapax.saga (ended_at) WHERE ended_at IS NOT NULL;

-- Steps that have begun, and what undoes them; `place` is the order in which they began.
CREATE TABLE hapax.saga_step (
    saga         text NOT NULL COLLATE "C" REFERENCES hapax.saga (id) ON DELETE CASCADE,
    name         text NOT NULL COLLATE "C",
    way          text NOT NULL CHECK (way IN ('do', 'undo')),
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
    PRIMARY KEY (saga, name, way)
);

-- What a saga was told, once under each name.
CREATE TABLE hapax.saga_signal (
    saga        text NOT NULL COLLATE "C" REFERENCES hapax.saga (id) ON DELETE CASCADE,
    name        text NOT NULL COLLATE "C",
    place       bigint GENERATED ALWAYS AS IDENTITY,
    payload     bytea NOT NULL,
    received_at timestamptz NOT NULL,
    PRIMARY KEY (saga, name)
);
