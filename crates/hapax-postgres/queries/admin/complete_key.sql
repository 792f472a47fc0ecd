-- Stores the response that an operator gives for a key in progress without an owner. The key is
-- kept as it is if its lease has not expired, or if its row was written since the operator read it
-- ($4 to $6 are its epoch, its creation time and the number of the transaction that wrote it). The
-- response is kept as long as the request asked for.
UPDATE hapax.idempotency_key SET
    state = $7::text,
    lease_until = NULL,
    owner = NULL,
    recovery_data = NULL,
    request = NULL,
    response_status = $8::int2,
    response_headers = $9::bytea,
    response_body = $10::bytea,
    resource_id = $11::text,
    completed_at = at,
    expires_at = at + (expires_at - created_at)
FROM (SELECT coalesce($12::timestamptz, clock_timestamp()) AS at) AS clock
WHERE tenant = $1::text AND operation = $2::text AND key = $3::text AND state = 'in_progress'
  AND coalesce(lease_until, created_at) <= at
  AND epoch = $4::int8 AND xmin::text::int8 = $6::int8
  AND (extract(epoch FROM created_at) / 0.000001)::int8 = $5::int8
RETURNING 1
