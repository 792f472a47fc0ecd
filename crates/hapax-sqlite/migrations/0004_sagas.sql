-- Sagas, their steps, and what they were told.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

CREATE TABLE hapax_saga (
    id            TEXT NOT NULL PRIMARY KEY,
    name          TEXT NOT NULL,
    version       INTEGER NOT NULL,
    tenant        TEXT,
    input         BLOB NOT NULL,
    headers       TEXT NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('running', 'needs_attention', 'completed', 'failed')),
    undoing       INTEGER NOT NULL DEFAULT 0,
    reason_code   TEXT,
    reason_detail TEXT,
    deadline_at   INTEGER NOT NULL,
    epoch         INTEGER NOT NULL DEFAULT 0,
    lease_until   INTEGER NOT NULL DEFAULT 0,
    wake_at       INTEGER,
    waiting_for   TEXT,
    created_at    INTEGER NOT NULL,
    ended_at      INTEGER
) WITHOUT ROWID;

-- What is due, the longest first.
CREATE INDEX hapax_saga_due ON hapax_saga (wake_at) WHERE wake_at IS NOT NULL;
-- What has ended, for retention.
CREATE INDEX hapax_saga_ended ON hapax_saga (ended_at) WHERE ended_at IS NOT NULL;
-- What needs a person.
CREATE INDEX hapax_saga_attention ON hapax_saga (name) WHERE state = 'needs_attention';

CREATE TABLE hapax_saga_step (
    saga         TEXT NOT NULL,
    name         TEXT NOT NULL,
    way          TEXT NOT NULL CHECK (way IN ('do', 'undo')),
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
    UNIQUE (saga, name, way)
);

CREATE TABLE hapax_saga_signal (
    saga        TEXT NOT NULL,
    name        TEXT NOT NULL,
    payload     BLOB NOT NULL,
    received_at INTEGER NOT NULL,
    UNIQUE (saga, name)
);
