-- Frees a key that its owner has not completed. If the owner is fenced, no row is returned.
DELETE FROM hapax.idempotency_key
WHERE tenant = $1::text AND operation = $2::text AND key = $3::text
  AND epoch = $4::int8 AND created_at = $5::timestamptz AND state = 'in_progress'
RETURNING 1
