-- Idempotency keys: the key table, the secret of derived keys, and the log of purged keys. Times are
-- milliseconds since the Unix epoch, in all tables.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Idempotency keys. In atomic mode a row is inserted once, complete with its response; in phased
-- mode it begins as `in_progress` with a lease.
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
    request          BLOB,
    UNIQUE (tenant, operation, key)
);
CREATE INDEX hapax_idempotency_key_expires ON hapax_idempotency_key (expires_at);
CREATE INDEX hapax_idempotency_key_lapses ON hapax_idempotency_key (lease_until)
    WHERE state = 'in_progress';

-- Secrets. A copy of the file has the same secrets, and so derives the same keys.
CREATE TABLE hapax_secret (
    name   TEXT NOT NULL PRIMARY KEY,
    secret BLOB NOT NULL CHECK (length(secret) = 32)
);
INSERT INTO hapax_secret (name, secret) VALUES ('derivation', randomblob(32));

-- The most recently purged keys, numbered in commit order and without gaps. A service that finds
-- fewer of them than were counted drops its whole replay cache.
CREATE TABLE hapax_key_purge (
    number    INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant    TEXT NOT NULL,
    operation TEXT NOT NULL,
    key       TEXT NOT NULL,
    purged_at INTEGER NOT NULL
);
