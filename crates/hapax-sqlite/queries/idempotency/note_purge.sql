-- Notes that a key was purged, for services that may have its answer in memory.
-- Only here: the other store does it in a function of the database.
INSERT INTO hapax_key_purge (tenant, operation, key, purged_at)
VALUES (?1, ?2, ?3, ?4)
RETURNING number
