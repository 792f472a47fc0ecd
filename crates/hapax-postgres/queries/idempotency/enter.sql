-- Enters a key that stands for nothing, while no other transaction has it: whatever row is there
-- has expired and gives way, and its epoch goes on, so that no owner of that row is taken for an
-- owner of this one. No row comes back when the key is taken.
INSERT INTO hapax.idempotency_key AS old
    (tenant, operation, key, fingerprint, state, lease_until, request, on_expired, created_at,
     expires_at)
SELECT $1::text, $2::text, $3::text, $4::bytea, 'in_progress',
       at + $5::int8 * interval '1 millisecond', $6::bytea, $7::text, at,
       at + $8::int8 * interval '1 millisecond'
FROM (SELECT date_trunc('milliseconds', coalesce($9::timestamptz, clock_timestamp())) AS at) AS clock
WHERE pg_try_advisory_xact_lock(hapax.key_lock($1::text, $2::text, $3::text))
ON CONFLICT (key, operation, tenant) DO UPDATE SET
    fingerprint = excluded.fingerprint,
    state = excluded.state,
    epoch = old.epoch + 1,
    lease_until = excluded.lease_until,
    recovery_point = NULL,
    request = excluded.request,
    response_status = NULL,
    response_headers = NULL,
    response_body = NULL,
    resource_id = NULL,
    on_expired = excluded.on_expired,
    created_at = excluded.created_at,
    completed_at = NULL,
    expires_at = excluded.expires_at
WHERE excluded.on_expired = 'new'
  AND (old.state = 'tombstone'
       OR old.state <> 'in_progress' AND old.expires_at <= excluded.created_at)
RETURNING epoch, created_at
