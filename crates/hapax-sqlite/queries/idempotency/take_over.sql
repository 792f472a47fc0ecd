-- Takes over keys with a stored request whose owner died, the longest expired first. The grace
-- period doubles with every owner, so that a request that always fails is tried less and less
-- often.
UPDATE hapax_idempotency_key SET
    epoch = epoch + 1,
    lease_until = ?2
WHERE rowid IN (
    SELECT rowid
    FROM hapax_idempotency_key
    WHERE state = 'in_progress'
      AND lease_until <= ?1 - ?3
      AND lease_until <= ?1 - (?3 << min(epoch - 1, ?4))
      AND request IS NOT NULL
      AND operation IN (SELECT value FROM json_each(?5))
    ORDER BY lease_until
    LIMIT ?6
)
RETURNING tenant, operation, key, fingerprint, epoch, created_at, recovery_point, expires_at, request
