-- Starts a saga, which is due at once. The service chooses the id, so a saga that exists is left
-- alone, and the insert waits for another transaction that is starting it. The key of the request
-- that starts the saga is kept for as long as the saga runs.
INSERT INTO hapax.saga
    (id, name, version, tenant, input, headers, state, deadline_at, wake_at, created_at, key_tenant,
     key_operation, key)
SELECT $1::text, $2::text, $3::int8, $4::text, $5::bytea, $6::text, 'running',
       at + $7::int8 * interval '1 millisecond', at, at, $9::text, $10::text, $11::text
FROM (SELECT date_trunc('milliseconds', coalesce($8::timestamptz, clock_timestamp())) AS at) AS clock
ON CONFLICT (id) DO NOTHING
RETURNING 1
