-- Finds a batch of expired answers by the index on expiry: an unfinished key never expires, nor does
-- one while a saga that was started under it has not ended.
-- Only here: the other store does all of a purge in one statement.
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
