-- Takes a key over whose lease has lapsed, if it is still the one that was read, which its moment says:
-- a key that was released may have been entered by another request since. The row says where
-- its request stopped. A request that was kept stays, for it is the same one. A row that its old
-- owner is writing is not waited for: that owner is not dead.
WITH judged AS (
    SELECT coalesce($7::timestamptz, clock_timestamp()) AS at
), free AS MATERIALIZED (
    SELECT at
    FROM hapax.idempotency_key, judged
    WHERE tenant = $1::text AND operation = $2::text AND key = $3::text
      AND epoch = $4::int8 AND created_at = $8::timestamptz
      AND state = 'in_progress' AND coalesce(lease_until, created_at) <= at
    FOR UPDATE OF idempotency_key SKIP LOCKED
)
UPDATE hapax.idempotency_key AS row SET
    epoch = row.epoch + 1,
    lease_until = at + $5::int8 * interval '1 millisecond',
    request = coalesce(row.request, $6::bytea)
FROM free
WHERE tenant = $1::text AND operation = $2::text AND key = $3::text
RETURNING epoch, recovery_point, created_at, expires_at
