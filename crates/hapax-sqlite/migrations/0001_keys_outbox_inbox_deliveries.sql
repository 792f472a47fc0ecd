-- The tables of Hapax: keys, outbox, inbox, deliveries. Times are milliseconds since the Unix epoch.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

-- What is known about each idempotency key.
CREATE TABLE hapax_idempotency_key (
    tenant           TEXT NOT NULL,
    operation        TEXT NOT NULL,
    key              TEXT NOT NULL,
    fingerprint      BLOB NOT NULL,
    state            TEXT NOT NULL CHECK (state IN ('in_progress', 'completed', 'failed', 'tombstone')),
    epoch            INTEGER NOT NULL,
    lease_until      INTEGER,
    recovery_point   TEXT,
    response_status  INTEGER,
    response_headers BLOB,
    response_body    BLOB,
    resource_id      TEXT,
    on_expired       TEXT NOT NULL CHECK (on_expired IN ('new', 'gone')),
    created_at       INTEGER NOT NULL,
    completed_at     INTEGER,
    expires_at       INTEGER NOT NULL,
    UNIQUE (tenant, operation, key)
);
CREATE INDEX hapax_idempotency_key_expires ON hapax_idempotency_key (expires_at);

-- Events, append-only: the id rises in commit order.
CREATE TABLE hapax_outbox_event (
    id             INTEGER PRIMARY KEY,
    event_id       TEXT NOT NULL,
    type           TEXT NOT NULL,
    tenant         TEXT,
    aggregate_type TEXT,
    aggregate_id   TEXT,
    sequence       INTEGER,
    payload        TEXT NOT NULL,
    headers        TEXT NOT NULL,
    created_at     INTEGER NOT NULL,
    available_at   INTEGER
);

-- Messages that were taken, once for each consumer.
CREATE TABLE hapax_inbox_message (
    consumer     TEXT NOT NULL,
    message_id   TEXT NOT NULL,
    source       TEXT NOT NULL,
    payload_hash BLOB NOT NULL,
    received_at  INTEGER NOT NULL,
    processed_at INTEGER,
    result       TEXT,
    PRIMARY KEY (consumer, message_id)
) WITHOUT ROWID;
CREATE INDEX hapax_inbox_message_received ON hapax_inbox_message (received_at);

-- Destinations that were ever opened, and why one is disabled.
CREATE TABLE hapax_destination (
    name            TEXT NOT NULL PRIMARY KEY,
    first_opened_at INTEGER NOT NULL,
    opened_at       INTEGER NOT NULL,
    disabled_at     INTEGER,
    disabled_reason TEXT
) WITHOUT ROWID;

-- How far each destination is: one row, rewritten. The sets are ranges, such as "5-9,12".
CREATE TABLE hapax_checkpoint (
    destination TEXT NOT NULL PRIMARY KEY REFERENCES hapax_destination (name),
    epoch       INTEGER NOT NULL,
    frontier    INTEGER NOT NULL,
    settled     TEXT NOT NULL,
    offered     TEXT NOT NULL,
    written_at  INTEGER NOT NULL
) WITHOUT ROWID;

-- Deliveries that are not plain sailing.
CREATE TABLE hapax_delivery (
    destination TEXT NOT NULL,
    position    INTEGER NOT NULL,
    state       TEXT NOT NULL CHECK (state IN
                    ('scheduled', 'retrying', 'blocked', 'dead', 'delivered', 'discarded')),
    attempt     INTEGER NOT NULL,
    next_at     INTEGER NOT NULL,
    order_key   TEXT,
    last_error  TEXT,
    begun_at    INTEGER,
    changed_at  INTEGER NOT NULL,
    reason      TEXT,
    PRIMARY KEY (destination, position)
) WITHOUT ROWID;
CREATE INDEX hapax_delivery_due ON hapax_delivery (destination, next_at, position)
    WHERE state IN ('scheduled', 'retrying');
CREATE INDEX hapax_delivery_begun ON hapax_delivery (destination, position)
    WHERE begun_at IS NOT NULL;
CREATE INDEX hapax_delivery_parked ON hapax_delivery (destination, position)
    WHERE state IN ('scheduled', 'retrying', 'blocked');
CREATE INDEX hapax_delivery_dead ON hapax_delivery (destination, position)
    WHERE state = 'dead';
CREATE INDEX hapax_delivery_unfinished ON hapax_delivery (destination, order_key, position)
    WHERE state IN ('retrying', 'blocked', 'dead');
CREATE INDEX hapax_delivery_live ON hapax_delivery (position)
    WHERE state IN ('scheduled', 'retrying', 'blocked', 'dead');
CREATE INDEX hapax_delivery_ended ON hapax_delivery (position)
    WHERE state IN ('delivered', 'discarded');

-- Every try, append-only.
CREATE TABLE hapax_attempt (
    id            INTEGER PRIMARY KEY,
    destination   TEXT NOT NULL,
    position      INTEGER NOT NULL,
    number        INTEGER NOT NULL,
    started_at    INTEGER NOT NULL,
    duration_ms   INTEGER NOT NULL,
    outcome       TEXT NOT NULL,
    status        INTEGER,
    error         TEXT,
    response_head BLOB NOT NULL
);
CREATE INDEX hapax_attempt_position ON hapax_attempt (position, destination);
