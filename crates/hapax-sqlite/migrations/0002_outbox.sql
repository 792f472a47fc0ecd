-- Outbox: events, in the order of their commits.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Events, append-only; ids rise in commit order.
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
