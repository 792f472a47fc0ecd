-- Stores the response of a phased request, for the owner only. The stored request is deleted,
-- because it is no longer needed. If the owner is fenced, no row changes and the statement divides
-- by zero, so that the commit fails.
-- IS NOT DISTINCT FROM keeps the planner from the index of created_at: a group has one time.
WITH finished AS (
    UPDATE hapax.idempotency_key SET
        state = $6::text,
        lease_until = NULL,
        owner = NULL,
        recovery_data = NULL,
        request = NULL,
        response_status = $7::int2,
        response_headers = $8::bytea,
        response_body = $9::bytea,
        resource_id = $12::text,
        completed_at = at,
        expires_at = at + $10::int8 * interval '1 millisecond'
    FROM (SELECT coalesce($11::timestamptz, clock_timestamp()) AS at) AS clock
    WHERE tenant = $1::text AND operation = $2::text AND key = $3::text
      AND epoch = $4::int8 AND created_at IS NOT DISTINCT FROM $5::timestamptz AND state = 'in_progress'
    RETURNING 1
)
SELECT 1 / count(*)
FROM finished
