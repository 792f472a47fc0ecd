-- Renews the lease of a key, for the owner only. If the owner is fenced, no row is returned. The time
-- is in milliseconds, as where leases are compared, so that a lease of 0 is over at once.
-- IS NOT DISTINCT FROM keeps the planner from the index of created_at: a group has one time.
UPDATE hapax.idempotency_key SET
    lease_until = date_trunc('milliseconds', coalesce($7::timestamptz, clock_timestamp()))
        + $6::int8 * interval '1 millisecond'
WHERE tenant = $1::text AND operation = $2::text AND key = $3::text
  AND epoch = $4::int8 AND created_at IS NOT DISTINCT FROM $5::timestamptz AND state = 'in_progress'
RETURNING 1
