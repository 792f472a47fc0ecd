-- Deletes a batch of expired tombstones, and returns their operations.
-- Only here: the PostgreSQL store does a whole purge in one statement.
DELETE FROM hapax_idempotency_key
WHERE rowid IN (
    SELECT rowid
    FROM hapax_idempotency_key
    WHERE expires_at <= ?1 AND state = 'tombstone'
    ORDER BY expires_at
    LIMIT ?2
)
RETURNING operation
