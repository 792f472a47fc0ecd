-- Reads the row that holds a key, and when that was: the database's clock unless one is given.
SELECT fingerprint, state, epoch, lease_until, response_status, response_headers, response_body,
       created_at, expires_at, coalesce($4::timestamptz, clock_timestamp())
FROM hapax.idempotency_key
WHERE tenant = $1::text AND operation = $2::text AND key = $3::text
