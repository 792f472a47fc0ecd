-- Starts a saga, due at once; the id is the service's own, so one that stands is left alone, and
-- one that another transaction is starting is waited for.
INSERT INTO hapax.saga
    (id, name, version, tenant, input, headers, state, deadline_at, wake_at, created_at)
SELECT $1::text, $2::text, $3::int8, $4::text, $5::bytea, $6::text, 'running',
       at + $7::int8 * interval '1 millisecond', at, at
FROM (SELECT date_trunc('milliseconds', coalesce($8::timestamptz, clock_timestamp())) AS at) AS clock
ON CONFLICT (id) DO NOTHING
RETURNING 1
