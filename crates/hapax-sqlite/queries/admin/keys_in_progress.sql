-- Reads the keys in progress: as many as requests that are running, and those whose owner died. The
-- caller stops after a number of keys.
-- Only here: the PostgreSQL store reads each of three indexes in a branch of one statement.
SELECT tenant, operation, key, state, epoch, lease_until, recovery_point, response_status,
       octet_length(response_body) AS body_bytes, created_at, completed_at, expires_at,
       resource_id, lower(hex(fingerprint)) AS fingerprint, rowid AS tie
FROM hapax_idempotency_key INDEXED BY hapax_idempotency_key_lapses
WHERE state = 'in_progress'
ORDER BY lease_until DESC
