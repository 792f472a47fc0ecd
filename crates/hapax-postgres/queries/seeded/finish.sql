-- The seeded bug `no-fence`: an owner that is fenced can still store a response over any other.
-- Only here: the SQLite store removes the clause from the correct statement.
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
      AND $4::int8 IS NOT NULL AND $5::timestamptz IS NOT NULL
    RETURNING 1
)
SELECT 1 / count(*)
FROM finished
