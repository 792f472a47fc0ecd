-- Takes due sagas that have no owner, the longest due first, skips locked rows, and raises the
-- epochs. Each kind is looked up separately, so that kinds that this process does not run cost
-- nothing. A later statement reads the steps: the snapshot of this one may be older than its locks,
-- and would then not show what the last owner wrote.
WITH judged AS (
    SELECT date_trunc('milliseconds', coalesce($1::timestamptz, clock_timestamp())) AS at
)
UPDATE hapax.saga AS saga SET
    epoch = saga.epoch + 1,
    lease_until = judged.at + $2::int8 * interval '1 millisecond'
FROM judged
WHERE saga.id = ANY (ARRAY(
    SELECT due.id
    FROM judged
    CROSS JOIN unnest($3::text[], $4::int8[]) AS kind (name, version)
    CROSS JOIN LATERAL (
        SELECT one.id, greatest(one.wake_at, one.lease_until) AS due_at
        FROM hapax.saga AS one
        WHERE one.name = kind.name
          AND one.version = kind.version
          AND one.wake_at IS NOT NULL
          AND greatest(one.wake_at, one.lease_until) <= judged.at
        ORDER BY greatest(one.wake_at, one.lease_until)
        LIMIT $5::int8
        FOR UPDATE SKIP LOCKED
    ) AS due
    ORDER BY due.due_at
    LIMIT $5::int8
))
RETURNING saga.id, saga.name, saga.version, saga.tenant, saga.input, saga.headers, saga.state,
          saga.compensating, saga.reason_code, saga.reason_detail, saga.deadline_at, saga.epoch,
          saga.wake_at, saga.waiting_for, saga.created_at, saga.ended_at, saga.lease_until, judged.at
