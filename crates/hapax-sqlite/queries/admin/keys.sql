-- Reads keys from the newest claim to the oldest, after a time (?1) and a row that was claimed then
-- (?2). The caller stops after a number of keys: a filter that matches nothing costs no more than
-- one that matches everything.
SELECT tenant, operation, key, state, epoch, lease_until, recovery_point, response_status,
       octet_length(response_body) AS body_bytes, created_at, completed_at, expires_at,
       resource_id, lower(hex(fingerprint)) AS fingerprint, rowid AS tie
FROM hapax_idempotency_key INDEXED BY hapax_idempotency_key_created
WHERE (created_at, rowid) < (?1, ?2)
ORDER BY created_at DESC, rowid DESC
