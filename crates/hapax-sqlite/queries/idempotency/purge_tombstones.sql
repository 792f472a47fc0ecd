-- Deletes a batch of tombstones whose time is over, and says whose they were.
-- Only here: the other store does all of a purge in one statement.
DELETE FROM hapax_idempotency_key
WHERE rowid IN (
    SELECT rowid
    FROM hapax_idempotency_key
    WHERE expires_at <= ?1 AND state = 'tombstone'
    ORDER BY expires_at
    LIMIT ?2
)
RETURNING operation
