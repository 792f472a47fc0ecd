-- Reads the row of a saga, the end of its lease, and the current time.
SELECT id, name, version, tenant, input, headers, state, compensating, reason_code, reason_detail,
       deadline_at, epoch, wake_at, waiting_for, created_at, ended_at, lease_until,
       coalesce($2::timestamptz, clock_timestamp()) AS at
FROM hapax.saga
WHERE id = $1::text
