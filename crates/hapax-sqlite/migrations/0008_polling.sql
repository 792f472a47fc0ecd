-- Polling: endpoints from which consumers fetch events that they cannot be sent.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- Polling endpoints. Without a tenant an endpoint returns the events of all tenants, which its creator
-- has to ask for (`all_tenants`). `types` is a JSON array of patterns. `token` and `old_token` are the
-- SHA-256 of bearer tokens; the old one is valid until a time, after a rotation. Cursors are
-- authenticated under `secret`, which is new for each endpoint. `frontier` is the committed position.
CREATE TABLE hapax_poll_endpoint (
    name            TEXT NOT NULL PRIMARY KEY,
    tenant          TEXT,
    all_tenants     INTEGER NOT NULL,
    types           TEXT NOT NULL,
    token           BLOB NOT NULL CHECK (length(token) = 32),
    old_token       BLOB CHECK (length(old_token) = 32),
    old_token_until INTEGER,
    secret          BLOB NOT NULL CHECK (length(secret) = 32),
    frontier        INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    created_by      TEXT NOT NULL,
    committed_at    INTEGER,
    last_polled_at  INTEGER,
    CHECK (all_tenants = (tenant IS NULL))
) WITHOUT ROWID;

-- How far events were purged: the highest position of an event that was deleted. A consumer whose
-- cursor is before it may have missed events. One row.
CREATE TABLE hapax_outbox_purged (
    last INTEGER NOT NULL
);
INSERT INTO hapax_outbox_purged (last)
SELECT coalesce((SELECT min(id) - 1 FROM hapax_outbox_event), 0);
CREATE TRIGGER hapax_outbox_event_is_purged AFTER DELETE ON hapax_outbox_event
WHEN OLD.id > (SELECT last FROM hapax_outbox_purged)
BEGIN
    UPDATE hapax_outbox_purged SET last = OLD.id;
END;
