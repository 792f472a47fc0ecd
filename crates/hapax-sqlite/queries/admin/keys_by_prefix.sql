-- Reads the keys that begin with some text: all keys from there on are greater (?1) and less than
-- the same text followed by the last letter (?2). The caller stops after a number of keys.
-- Only here: the PostgreSQL store reads each of three indexes in a branch of one statement.
SELECT tenant, operation, key, state, epoch, lease_until, recovery_point, response_status,
       octet_length(response_body) AS body_bytes, created_at, completed_at, expires_at,
       resource_id, lower(hex(fingerprint)) AS fingerprint, rowid AS tie
FROM hapax_idempotency_key
WHERE key >= ?1 AND key < ?2
ORDER BY key
