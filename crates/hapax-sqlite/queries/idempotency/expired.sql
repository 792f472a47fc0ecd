-- Finds a batch of expired responses with the index on the expiry. An unfinished key never expires,
-- and neither does a key while a saga that was started under it has not ended.
-- Only here: the PostgreSQL store does a whole purge in one statement.
SELECT rowid, operation, on_expired, expires_at
FROM hapax_idempotency_key AS old
WHERE expires_at <= ?1 AND state IN ('completed', 'failed')
  AND NOT EXISTS (
      SELECT 1
      FROM hapax_saga AS live
      WHERE live.key_tenant = old.tenant AND live.key_operation = old.operation
        AND live.key = old.key AND live.ended_at IS NULL
  )
ORDER BY expires_at
LIMIT ?2
