-- Endpoints: webhooks that belong to tenants, and the queue of their deliveries.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- The version of the endpoints: one row, which every change of an endpoint updates.
CREATE TABLE hapax_endpoint_version (
    is_only INTEGER NOT NULL PRIMARY KEY DEFAULT 1 CHECK (is_only = 1),
    version INTEGER NOT NULL
);
INSERT INTO hapax_endpoint_version (version) VALUES (0);

-- Endpoints of tenants. `types` is a JSON array of patterns, `headers` one of the names of configured
-- headers. `sealed` has the secrets, encrypted by the program that wrote them. An endpoint with a
-- `disabled_reason` receives nothing. `failures` counts the attempts since the last success, the first
-- of which was recorded at `failing_since`. The row of a deleted endpoint is kept for some days without
-- its content, so that each relay learns of it.
CREATE TABLE hapax_endpoint (
    id              TEXT NOT NULL PRIMARY KEY,
    tenant          TEXT NOT NULL,
    url             TEXT NOT NULL,
    description     TEXT NOT NULL,
    types           TEXT NOT NULL,
    filter          TEXT,
    headers         TEXT NOT NULL,
    sealed          BLOB,
    previous_until  INTEGER,
    disabled_reason TEXT,
    disabled_at     INTEGER,
    failures        INTEGER NOT NULL DEFAULT 0,
    failing_since   INTEGER,
    created_at      INTEGER NOT NULL,
    created_by      TEXT NOT NULL,
    changed_at      INTEGER NOT NULL,
    changed_by      TEXT NOT NULL,
    deleted_at      INTEGER,
    version         INTEGER NOT NULL,
    CHECK ((disabled_reason IS NULL) = (disabled_at IS NULL))
);
CREATE UNIQUE INDEX hapax_endpoint_changes ON hapax_endpoint (version);
CREATE INDEX hapax_endpoint_of_tenant ON hapax_endpoint (tenant, id) WHERE deleted_at IS NULL;
CREATE INDEX hapax_endpoint_deleted ON hapax_endpoint (deleted_at) WHERE deleted_at IS NOT NULL;

-- Deliveries that were not over at once. Each has a copy of its event, so that it needs the outbox no
-- more. `attempt` counts all attempts; the schedule counts those after `counted_from`, where it was
-- replayed. A claimed delivery waits until its lease is over at `next_at`.
CREATE TABLE hapax_endpoint_delivery (
    id               INTEGER PRIMARY KEY,
    endpoint         TEXT NOT NULL,
    tenant           TEXT NOT NULL,
    position         INTEGER NOT NULL,
    event_id         TEXT NOT NULL,
    type             TEXT NOT NULL,
    aggregate_type   TEXT,
    aggregate_id     TEXT,
    sequence         INTEGER,
    payload          TEXT NOT NULL,
    headers          TEXT NOT NULL,
    event_created_at INTEGER NOT NULL,
    state            TEXT NOT NULL CHECK (state IN ('waiting', 'delivered', 'failed')),
    attempt          INTEGER NOT NULL,
    counted_from     INTEGER NOT NULL DEFAULT 0,
    next_at          INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    ended_at         INTEGER,
    last_error       TEXT,
    UNIQUE (endpoint, event_id),
    CHECK ((state = 'waiting') = (ended_at IS NULL))
);
CREATE INDEX hapax_endpoint_delivery_due ON hapax_endpoint_delivery (endpoint, next_at, id)
    WHERE state = 'waiting';
CREATE INDEX hapax_endpoint_delivery_failed ON hapax_endpoint_delivery (endpoint, ended_at)
    WHERE state = 'failed';
CREATE INDEX hapax_endpoint_delivery_ended ON hapax_endpoint_delivery (ended_at)
    WHERE state <> 'waiting';

-- Attempts, append-only, with the beginning of the request and of the response. Both are encrypted if
-- the relay has a keyring. The index over all columns that identify an attempt refuses one that is
-- recorded twice.
CREATE TABLE hapax_endpoint_attempt (
    id           INTEGER PRIMARY KEY,
    endpoint     TEXT NOT NULL,
    tenant       TEXT NOT NULL,
    position     INTEGER NOT NULL,
    event_id     TEXT NOT NULL,
    type         TEXT NOT NULL,
    number       INTEGER NOT NULL,
    started_at   INTEGER NOT NULL,
    duration_ms  INTEGER NOT NULL,
    outcome      TEXT NOT NULL,
    status       INTEGER,
    error        TEXT,
    request      BLOB NOT NULL,
    response     BLOB NOT NULL,
    is_encrypted INTEGER NOT NULL,
    UNIQUE (endpoint, event_id, number, started_at)
);
CREATE INDEX hapax_endpoint_attempt_newest ON hapax_endpoint_attempt (endpoint, started_at, id);
CREATE INDEX hapax_endpoint_attempt_failed ON hapax_endpoint_attempt (endpoint, started_at, id)
    WHERE outcome <> 'delivered';
