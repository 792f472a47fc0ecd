-- Records that a key was purged, for services that may have its response in memory.
-- Only here: the PostgreSQL store does it in a function of its schema.
INSERT INTO hapax_key_purge (tenant, operation, key, purged_at)
VALUES (?1, ?2, ?3, ?4)
RETURNING number
