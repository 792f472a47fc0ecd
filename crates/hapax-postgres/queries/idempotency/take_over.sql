-- Takes over keys with a stored request whose owner died, the longest expired first, and skips
-- locked rows. The grace period doubles with every owner, so that a request that always fails is
-- tried less and less often.
WITH judged AS (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS at
), lapsed AS MATERIALIZED (
    SELECT tenant, operation, key, at
    FROM hapax.idempotency_key, judged
    WHERE state = 'in_progress' AND on_expired <> ''
      AND lease_until <= at - $3::int8 * interval '1 millisecond'
      AND lease_until
          <= at - ($3::int8 << least(epoch - 1, $4::int8)::int) * interval '1 millisecond'
      AND request IS NOT NULL
      AND operation = ANY ($5::text[])
    ORDER BY lease_until
    LIMIT $6::int8
    FOR UPDATE OF idempotency_key SKIP LOCKED
)
UPDATE hapax.idempotency_key AS row SET
    epoch = row.epoch + 1,
    owner = NULL,
    lease_until = at + $2::int8 * interval '1 millisecond'
FROM lapsed
WHERE (row.key, row.operation, row.tenant) = (lapsed.key, lapsed.operation, lapsed.tenant)
RETURNING row.tenant, row.operation, row.key, fingerprint, epoch, created_at, recovery_point,
          expires_at, request
