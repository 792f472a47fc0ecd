-- Frees a key in progress without an owner at an operator's request, because its request had no
-- effect. The key is kept under the same conditions as in complete_key.sql.
DELETE FROM hapax.idempotency_key
WHERE tenant = $1::text AND operation = $2::text AND key = $3::text AND state = 'in_progress'
  AND coalesce(lease_until, created_at) <= coalesce($7::timestamptz, clock_timestamp())
  AND epoch = $4::int8 AND xmin::text::int8 = $6::int8
  AND (extract(epoch FROM created_at) / 0.000001)::int8 = $5::int8
RETURNING 1
