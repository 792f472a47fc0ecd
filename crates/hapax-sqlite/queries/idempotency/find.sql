-- Reads the row that holds a key, through the unique index.
SELECT fingerprint, state, epoch, lease_until, response_status, response_headers, response_body,
       created_at, expires_at
FROM hapax_idempotency_key
WHERE tenant = ?1 AND operation = ?2 AND key = ?3
