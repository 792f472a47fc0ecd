-- Takes one saga from whoever has it, or, where its epoch is given, only as long as it has that; a transaction of its worker is waited for. Its steps are read
-- by a later statement: see take.
UPDATE hapax.saga SET
    epoch = epoch + 1,
    lease_until = at + $2::int8 * interval '1 millisecond'
FROM (SELECT date_trunc('milliseconds', coalesce($3::timestamptz, clock_timestamp())) AS at) AS clock
WHERE id = $1::text AND ($4::int8 IS NULL OR epoch = $4::int8)
RETURNING id, name, version, tenant, input, headers, state, undoing, reason_code, reason_detail,
          deadline_at, epoch, wake_at, waiting_for, created_at, ended_at, lease_until, at
