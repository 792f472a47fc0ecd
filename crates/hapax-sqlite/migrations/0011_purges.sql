-- Purged keys, for services to read that keep answers in memory; and the key that a saga was started
-- under, which stands as long as the saga lives.
-- Applied once, checked by its hash ever after: never edit it, add a file instead.

-- The keys that were purged last, numbered in the order of their commits and without gaps. A service
-- that finds fewer of them than were counted forgets every answer that it keeps in memory.
CREATE TABLE hapax_key_purge (
    number    INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant    TEXT NOT NULL,
    operation TEXT NOT NULL,
    key       TEXT NOT NULL,
    purged_at INTEGER NOT NULL
);

-- The key of the request that started a saga; of one that was started before, nothing.
ALTER TABLE hapax_saga ADD COLUMN key_tenant TEXT;
ALTER TABLE hapax_saga ADD COLUMN key_operation TEXT;
ALTER TABLE hapax_saga ADD COLUMN key TEXT;
CREATE INDEX hapax_saga_key ON hapax_saga (key_tenant, key_operation, key)
    WHERE ended_at IS NULL AND key IS NOT NULL;
