-- Renews the lease of a key, for the owner only. If the owner is fenced, no row is returned.
UPDATE hapax.idempotency_key SET
    lease_until = coalesce($7::timestamptz, clock_timestamp()) + $6::int8 * interval '1 millisecond'
WHERE tenant = $1::text AND operation = $2::text AND key = $3::text
  AND epoch = $4::int8 AND created_at = $5::timestamptz AND state = 'in_progress'
RETURNING 1
