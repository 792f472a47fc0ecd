-- Takes over a key whose lease has expired, if it is still the key that was read, as its creation
-- time shows: after a release, another request may have claimed the key. The row contains the last
-- recovery point. A request that is stored already is kept, because it is the same request. A row
-- that its old owner is writing is not waited for, because that owner is alive.
-- IS NOT DISTINCT FROM keeps the planner from the index of created_at: a group has one time.
WITH judged AS (
    SELECT coalesce($7::timestamptz, clock_timestamp()) AS at
), free AS MATERIALIZED (
    SELECT at
    FROM hapax.idempotency_key, judged
    WHERE tenant = $1::text AND operation = $2::text AND key = $3::text
      AND epoch = $4::int8 AND created_at IS NOT DISTINCT FROM $8::timestamptz
      AND state = 'in_progress' AND coalesce(lease_until, created_at) <= at
    FOR UPDATE OF idempotency_key SKIP LOCKED
)
UPDATE hapax.idempotency_key AS row SET
    epoch = row.epoch + 1,
    owner = NULL,
    lease_until = at + $5::int8 * interval '1 millisecond',
    request = coalesce(row.request, $6::bytea)
FROM free
WHERE tenant = $1::text AND operation = $2::text AND key = $3::text
RETURNING epoch, recovery_point, created_at, expires_at
