-- Reads a saga's row, until when it is held, and what time it is.
SELECT id, name, version, tenant, input, headers, state, undoing, reason_code, reason_detail,
       deadline_at, epoch, wake_at, waiting_for, created_at, ended_at, lease_until,
       coalesce($2::timestamptz, clock_timestamp())
FROM hapax.saga
WHERE id = $1::text
