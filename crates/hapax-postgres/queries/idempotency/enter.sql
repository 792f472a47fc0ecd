-- Claims a key that has no row, for a phased request, unless another transaction is using the key.
-- The request may begin at a recovery point ($10). The owner is the identity of this attempt ($11), by
-- which it finds its row if the result of the statement is lost. An existing row is looked up first,
-- because a conflicting insert would wait for a transaction that is writing that row.
INSERT INTO hapax.idempotency_key
    (tenant, operation, key, fingerprint, state, owner, lease_until, recovery_point, request,
     on_expired, created_at, expires_at)
SELECT $1::text, $2::text, $3::text, $4::bytea, 'in_progress', $11::text,
       at + $5::int8 * interval '1 millisecond', $10::text, $6::bytea, $7::text, at,
       at + $8::int8 * interval '1 millisecond'
FROM (SELECT date_trunc('milliseconds', coalesce($9::timestamptz, clock_timestamp())) AS at) AS clock
WHERE NOT EXISTS (
        SELECT 1
        FROM hapax.idempotency_key
        WHERE tenant = $1::text AND operation = $2::text AND key = $3::text
    )
  AND pg_try_advisory_xact_lock(hapax.key_lock($1::text, $2::text, $3::text))
ON CONFLICT (key, operation, tenant) DO NOTHING
RETURNING epoch, created_at
