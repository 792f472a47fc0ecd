-- Deliveries: events that are parked, attempts, and first attempts that succeeded.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Deliveries that have a row: scheduled, retrying, blocked, dead letters, and settled ones
-- that were among these.
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

-- Delivery attempts, append-only. If an attempt was interrupted because another relay took the
-- destination, `owner` is the previous owner and `owner_seen_at` its last heartbeat at that time: a
-- relay that sends a later heartbeat was alive, so the event did not kill it.
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
    response_head BLOB NOT NULL,
    owner         TEXT,
    owner_seen_at INTEGER
);
CREATE INDEX hapax_attempt_position ON hapax_attempt (position, destination);

-- Events delivered at the first attempt, as ranges such as "5-9,12": one row for events that were
-- settled together and are within 8,192 positions of each other, which bounds the rows to search
-- for one position.
CREATE TABLE hapax_arrival (
    partition        TEXT NOT NULL,
    positions   TEXT NOT NULL,
    first       INTEGER NOT NULL,
    last        INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,
    status      INTEGER,
    PRIMARY KEY (first, partition, started_at)
) WITHOUT ROWID;
