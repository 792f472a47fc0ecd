-- Frees a key that its owner has not completed. If the owner is fenced, no row is returned.
-- IS NOT DISTINCT FROM keeps the planner from the index of created_at: a group has one time.
DELETE FROM hapax.idempotency_key
WHERE tenant = $1::text AND operation = $2::text AND key = $3::text
  AND epoch = $4::int8 AND created_at IS NOT DISTINCT FROM $5::timestamptz AND state = 'in_progress'
RETURNING 1
