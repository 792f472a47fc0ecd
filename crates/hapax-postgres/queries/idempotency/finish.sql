-- Stores the answer of a phased request, for the owner alone: the request is not needed any more.
-- For a fenced owner no row changes and it divides by zero: the commit behind it fails with it.
WITH finished AS (
    UPDATE hapax.idempotency_key SET
        state = $6::text,
        lease_until = NULL,
        request = NULL,
        response_status = $7::int2,
        response_headers = $8::bytea,
        response_body = $9::bytea,
        completed_at = at,
        expires_at = at + $10::int8 * interval '1 millisecond'
    FROM (SELECT coalesce($11::timestamptz, clock_timestamp()) AS at) AS clock
    WHERE tenant = $1::text AND operation = $2::text AND key = $3::text
      AND epoch = $4::int8 AND created_at = $5::timestamptz AND state = 'in_progress'
    RETURNING 1
)
SELECT 1 / count(*)
FROM finished
