-- Endpoints: webhooks that belong to tenants, and the queue of their deliveries.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- The version of the endpoints: one row, which every change of an endpoint updates. Its lock orders the
-- changes, so that a change which is committed later has a higher version.
CREATE TABLE hapax.endpoint_version (
    is_only boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (is_only),
    version bigint NOT NULL
);
INSERT INTO hapax.endpoint_version (version) VALUES (0);

-- Endpoints of tenants. `types` is a JSON array of patterns, `headers` one of the names of configured
-- headers. `sealed` has the secrets, encrypted by the program that wrote them. An endpoint with a
-- `disabled_reason` receives nothing. `failures` counts the attempts since the last success, the first
-- of which was recorded at `failing_since`. The row of a deleted endpoint is kept for some days without
-- its content, so that each relay learns of it. A failure changes no indexed column, so a page has room
-- for the new version of a row.
CREATE TABLE hapax.endpoint (
    id              text COLLATE "C" NOT NULL PRIMARY KEY,
    tenant          text NOT NULL,
    url             text NOT NULL,
    description     text NOT NULL,
    types           text NOT NULL,
    filter          text,
    headers         text NOT NULL,
    sealed          bytea,
    previous_until  timestamptz,
    disabled_reason text,
    disabled_at     timestamptz,
    failures        integer NOT NULL DEFAULT 0,
    failing_since   timestamptz,
    created_at      timestamptz NOT NULL,
    created_by      text NOT NULL,
    changed_at      timestamptz NOT NULL,
    changed_by      text NOT NULL,
    deleted_at      timestamptz,
    version         bigint NOT NULL,
    CHECK ((disabled_reason IS NULL) = (disabled_at IS NULL))
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX endpoint_changes ON hapax.endpoint (version);
CREATE INDEX endpoint_of_tenant ON hapax.endpoint (tenant, id) WHERE deleted_at IS NULL;
CREATE INDEX endpoint_deleted ON hapax.endpoint (deleted_at) WHERE deleted_at IS NOT NULL;

-- Deliveries that were not over at once. Each has a copy of its event, so that it needs the outbox no
-- more. `attempt` counts all attempts; the schedule counts those after `counted_from`, where it was
-- replayed. A claimed delivery waits until its lease is over at `next_at`.
CREATE TABLE hapax.endpoint_delivery (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint         text COLLATE "C" NOT NULL,
    tenant           text NOT NULL,
    position         bigint NOT NULL,
    event_id         uuid NOT NULL,
    type             text NOT NULL,
    aggregate_type   text,
    aggregate_id     text,
    sequence         bigint,
    payload          text NOT NULL,
    headers          text NOT NULL,
    event_created_at timestamptz NOT NULL,
    state            text NOT NULL CHECK (state IN ('waiting', 'delivered', 'failed')),
    attempt          integer NOT NULL,
    counted_from     integer NOT NULL DEFAULT 0,
    next_at          timestamptz NOT NULL,
    created_at       timestamptz NOT NULL,
    ended_at         timestamptz,
    last_error       text,
    UNIQUE (endpoint, event_id),
    CHECK ((state = 'waiting') = (ended_at IS NULL))
) WITH (fillfactor = 80);
CREATE INDEX endpoint_delivery_due ON hapax.endpoint_delivery (endpoint, next_at, id)
    WHERE state = 'waiting';
CREATE INDEX endpoint_delivery_failed ON hapax.endpoint_delivery (endpoint, ended_at)
    WHERE state = 'failed';
CREATE INDEX endpoint_delivery_ended ON hapax.endpoint_delivery (ended_at)
    WHERE state <> 'waiting';

-- Attempts, append-only, with the beginning of the request and of the response. Both are encrypted if
-- the relay has a keyring. The index over all columns that identify an attempt refuses one that is
-- recorded twice.
CREATE TABLE hapax.endpoint_attempt (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint     text COLLATE "C" NOT NULL,
    tenant       text NOT NULL,
    position     bigint NOT NULL,
    event_id     uuid NOT NULL,
    type         text NOT NULL,
    number       integer NOT NULL,
    started_at   timestamptz NOT NULL,
    duration_ms  bigint NOT NULL,
    outcome      text NOT NULL,
    status       smallint,
    error        text,
    request      bytea NOT NULL,
    response     bytea NOT NULL,
    is_encrypted boolean NOT NULL,
    UNIQUE (endpoint, event_id, number, started_at)
);
CREATE INDEX endpoint_attempt_newest ON hapax.endpoint_attempt (endpoint, started_at, id);
CREATE INDEX endpoint_attempt_failed ON hapax.endpoint_attempt (endpoint, started_at, id)
    WHERE outcome <> 'delivered';
