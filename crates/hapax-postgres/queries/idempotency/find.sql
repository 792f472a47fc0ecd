-- Reads the row of a key, and the time of the read: the database's clock, unless a time ($4) is
-- given. An expired key is kept while a saga that was started under it has not ended.
SELECT fingerprint, state, epoch, lease_until, response_status, response_headers, response_body,
       created_at,
       CASE
           WHEN expires_at > at OR state IN ('tombstone', 'in_progress') THEN expires_at
           ELSE hapax.effective_expiry(tenant, operation, key, expires_at, at)
       END AS expires_at,
       at
FROM hapax.idempotency_key, (SELECT coalesce($4::timestamptz, clock_timestamp()) AS at) AS clock
WHERE tenant = $1::text AND operation = $2::text AND key = $3::text
