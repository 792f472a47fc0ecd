-- Finds a batch of expired answers by the index on expiry: an unfinished key never expires.
-- Only here: the other store does all of a purge in one statement.
SELECT rowid, operation, on_expired, expires_at
FROM hapax_idempotency_key
WHERE expires_at <= ?1 AND state IN ('completed', 'failed')
ORDER BY expires_at
LIMIT ?2
