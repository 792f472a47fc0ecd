-- Deliveries: events that are parked, attempts, and first attempts that succeeded.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Deliveries that have a row: scheduled, retrying, blocked, dead letters, and settled ones
-- that were among these.
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
    payload     text,
    headers     text,
    manual      boolean,
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

-- Delivery attempts, append-only. If an attempt was interrupted because another relay took the
-- partition, `owner` is the previous owner and `owner_heartbeat` the number of its last heartbeat at
-- that time: a relay that sends a later heartbeat was alive, so the event did not kill it.
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
    response_head bytea NOT NULL,
    owner         text,
    owner_heartbeat    bigint
);
CREATE INDEX attempt_position ON hapax.attempt (position, destination);

-- Events delivered at the first attempt, as ranges: one row for events that were settled together
-- and are within 8,192 positions of each other, which bounds the rows to search for one position.
CREATE TABLE hapax.arrival (
    partition        text NOT NULL,
    positions   text NOT NULL,
    first       bigint NOT NULL,
    last        bigint NOT NULL,
    started_at  timestamptz NOT NULL,
    duration_ms bigint NOT NULL,
    status      smallint,
    PRIMARY KEY (first, partition, started_at)
);
-- For recent deliveries; one row covers all events that were settled together.
CREATE INDEX arrival_started ON hapax.arrival (started_at);
