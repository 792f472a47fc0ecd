-- Takes one saga, even if it is owned. If an epoch ($4) is given, the saga is only taken if it
-- still has that epoch. The update waits for a transaction of the saga's owner. A later statement
-- reads the steps: see take.
UPDATE hapax.saga SET
    epoch = epoch + 1,
    lease_until = at + $2::int8 * interval '1 millisecond'
FROM (SELECT date_trunc('milliseconds', coalesce($3::timestamptz, clock_timestamp())) AS at) AS clock
WHERE id = $1::text AND ($4::int8 IS NULL OR epoch = $4::int8)
RETURNING id, name, version, tenant, input, headers, state, compensating, reason_code, reason_detail,
          deadline_at, epoch, wake_at, waiting_for, created_at, ended_at, lease_until, at
