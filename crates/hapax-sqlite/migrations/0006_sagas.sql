-- Sagas: their state, steps and signals, and the keys that they were started under.
-- Applied once and then checked by its hash: never edit this file, add another one.

CREATE TABLE hapax_saga (
    id            TEXT NOT NULL PRIMARY KEY,
    name          TEXT NOT NULL,
    version       INTEGER NOT NULL,
    tenant        TEXT,
    input         BLOB NOT NULL,
    headers       TEXT NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('running', 'needs_attention', 'completed', 'failed')),
    compensating       INTEGER NOT NULL DEFAULT 0,
    reason_code   TEXT,
    reason_detail TEXT,
    deadline_at   INTEGER NOT NULL,
    epoch         INTEGER NOT NULL DEFAULT 0,
    lease_until   INTEGER NOT NULL DEFAULT 0,
    wake_at       INTEGER,
    waiting_for   TEXT,
    created_at    INTEGER NOT NULL,
    ended_at      INTEGER,
    key_tenant    TEXT,
    key_operation TEXT,
    key           TEXT
) WITHOUT ROWID;
-- Due sagas, the one that has waited longest first.
CREATE INDEX hapax_saga_due ON hapax_saga (wake_at) WHERE wake_at IS NOT NULL;
-- Ended sagas, for retention.
CREATE INDEX hapax_saga_ended ON hapax_saga (ended_at) WHERE ended_at IS NOT NULL;
-- Sagas that need an operator's decision.
CREATE INDEX hapax_saga_attention ON hapax_saga (name) WHERE state = 'needs_attention';
CREATE INDEX hapax_saga_key ON hapax_saga (key_tenant, key_operation, key)
    WHERE ended_at IS NULL AND key IS NOT NULL;

CREATE TABLE hapax_saga_step (
    saga         TEXT NOT NULL,
    name         TEXT NOT NULL,
    direction          TEXT NOT NULL CHECK (direction IN ('forward', 'compensate')),
    state        TEXT NOT NULL CHECK (state IN ('open', 'done', 'refused')),
    provider_key TEXT,
    request      BLOB NOT NULL,
    made         BLOB NOT NULL,
    error_code   TEXT,
    error_detail TEXT,
    attempts     INTEGER NOT NULL,
    next_at      INTEGER NOT NULL,
    began_at     INTEGER NOT NULL,
    ended_at     INTEGER,
    UNIQUE (saga, name, direction)
);

CREATE TABLE hapax_saga_signal (
    saga        TEXT NOT NULL,
    name        TEXT NOT NULL,
    payload     BLOB NOT NULL,
    received_at INTEGER NOT NULL,
    UNIQUE (saga, name)
);
