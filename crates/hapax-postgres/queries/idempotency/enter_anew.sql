-- Claims a key whose row has expired, for a phased request, unless another transaction is using the
-- key. The epoch continues, so that an owner of the old row is not mistaken for the owner of the
-- new one. The new owner is the identity of this attempt ($11), as in enter.
UPDATE hapax.idempotency_key SET
    fingerprint = $4::bytea,
    state = 'in_progress',
    epoch = epoch + 1,
    entered_epoch = epoch + 1,
    owner = $11::text,
    lease_until = at + $5::int8 * interval '1 millisecond',
    recovery_point = $10::text,
    recovery_data = NULL,
    request = $6::bytea,
    response_status = NULL,
    response_headers = NULL,
    response_body = NULL,
    resource_id = NULL,
    on_expired = $7::text,
    created_at = at,
    completed_at = NULL,
    expires_at = at + $8::int8 * interval '1 millisecond'
FROM (SELECT date_trunc('milliseconds', coalesce($9::timestamptz, clock_timestamp())) AS at) AS clock
WHERE tenant = $1::text AND operation = $2::text AND key = $3::text
  AND (state = 'tombstone' OR state <> 'in_progress' AND expires_at <= at)
  AND pg_try_advisory_xact_lock(hapax.key_lock($1::text, $2::text, $3::text))
RETURNING epoch, created_at
