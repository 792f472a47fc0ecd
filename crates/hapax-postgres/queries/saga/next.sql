-- Returns when the next saga of these kinds is due, and the current time. A saga that is owned is
-- due when its lease expires.
SELECT min(next.due_at), coalesce($1::timestamptz, clock_timestamp())
FROM unnest($2::text[], $3::int8[]) AS kind (name, version)
CROSS JOIN LATERAL (
    SELECT greatest(wake_at, lease_until) AS due_at
    FROM hapax.saga
    WHERE saga.name = kind.name
      AND saga.version = kind.version
      AND wake_at IS NOT NULL
    ORDER BY greatest(wake_at, lease_until)
    LIMIT 1
) AS next
