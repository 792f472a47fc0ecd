-- The tables of Hapax: keys, outbox, inbox, deliveries.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

-- What is known about each idempotency key. A row is written once, whole, with its answer (atomic
-- mode), or begins `in_progress` with a lease (phased mode). `state` is one of in_progress, completed,
-- failed, tombstone, and `on_expired` one of new, gone. No constraint says so: a CHECK is parsed and
-- planned anew with every row that is written, and costs a fifth of it.
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

-- The advisory lock that stands for a key while its transaction runs. Two keys with one number
-- would wait for each other without need, and nothing worse.
CREATE FUNCTION hapax.key_lock(tenant text, operation text, key text) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN hashtextextended(tenant || E'\n' || operation || E'\n' || key, 0);

-- Which of 16 shards an event is in: all events of one aggregate are in one.
CREATE FUNCTION hapax.shard_of(aggregate_type text, aggregate_id text) RETURNS smallint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN coalesce((hashtextextended(aggregate_type || E'\n' || aggregate_id, 0) & 15)::smallint, 0::smallint);

-- Events, append-only. `xid` comes before `id`: the transaction has its number before it draws an
-- id, and so no id is older than its transaction.
CREATE SEQUENCE hapax.outbox_event_id AS bigint CACHE 1;
CREATE TABLE hapax.outbox_event (
    xid            xid8 NOT NULL DEFAULT pg_current_xact_id(),
    id             bigint NOT NULL DEFAULT nextval('hapax.outbox_event_id') PRIMARY KEY,
    segment        smallint NOT NULL DEFAULT 0,
    shard          smallint NOT NULL DEFAULT 0,
    event_id       uuid NOT NULL,
    type           text NOT NULL,
    tenant         text,
    aggregate_type text,
    aggregate_id   text,
    sequence       bigint,
    payload        text NOT NULL,
    headers        text NOT NULL,
    created_at     timestamptz NOT NULL,
    available_at   timestamptz
);

-- Messages that were taken, once for each consumer.
CREATE TABLE hapax.inbox_message (
    consumer     text NOT NULL,
    message_id   text NOT NULL COLLATE "C",
    source       text NOT NULL,
    payload_hash bytea NOT NULL,
    received_at  timestamptz NOT NULL,
    processed_at timestamptz,
    result       text,
    PRIMARY KEY (message_id, consumer)
);
CREATE INDEX inbox_message_received ON hapax.inbox_message (received_at);

-- Destinations that were ever opened, and why one is disabled.
CREATE TABLE hapax.destination (
    name            text NOT NULL PRIMARY KEY,
    first_opened_at timestamptz NOT NULL,
    opened_at       timestamptz NOT NULL,
    disabled_at     timestamptz,
    disabled_reason text
);

-- How far each destination is: one row, rewritten. The sets are ranges, such as "5-9,12".
CREATE TABLE hapax.checkpoint (
    destination text NOT NULL PRIMARY KEY REFERENCES hapax.destination (name),
    epoch       bigint NOT NULL,
    frontier    bigint NOT NULL,
    snapshot    text,
    settled     text NOT NULL,
    offered     text NOT NULL,
    written_at  timestamptz NOT NULL
) WITH (fillfactor = 10);

-- Deliveries that are not plain sailing.
CREATE TABLE hapax.delivery (
    destination text NOT NULL,
    position    bigint NOT NULL,
    state       text NOT NULL CHECK (state IN
                    ('scheduled', 'retrying', 'blocked', 'dead', 'delivered', 'discarded')),
    attempt     integer NOT NULL,
    next_at     timestamptz NOT NULL,
    order_key   text,
    last_error  text,
    begun_at    timestamptz,
    changed_at  timestamptz NOT NULL,
    reason      text,
    PRIMARY KEY (destination, position)
);
CREATE INDEX delivery_due ON hapax.delivery (destination, next_at, position)
    WHERE state IN ('scheduled', 'retrying');
CREATE INDEX delivery_begun ON hapax.delivery (destination, position)
    WHERE begun_at IS NOT NULL;
CREATE INDEX delivery_parked ON hapax.delivery (destination, position)
    WHERE state IN ('scheduled', 'retrying', 'blocked');
CREATE INDEX delivery_dead ON hapax.delivery (destination, position)
    WHERE state = 'dead';
CREATE INDEX delivery_unfinished ON hapax.delivery (destination, order_key, position)
    WHERE state IN ('retrying', 'blocked', 'dead');
CREATE INDEX delivery_live ON hapax.delivery (position)
    WHERE state IN ('scheduled', 'retrying', 'blocked', 'dead');

-- Every try, append-only.
CREATE TABLE hapax.attempt (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    destination   text NOT NULL,
    position      bigint NOT NULL,
    number        integer NOT NULL,
    started_at    timestamptz NOT NULL,
    duration_ms   bigint NOT NULL,
    outcome       text NOT NULL,
    status        smallint,
    error         text,
    response_head bytea NOT NULL
);
CREATE INDEX attempt_position ON hapax.attempt (position, destination);
