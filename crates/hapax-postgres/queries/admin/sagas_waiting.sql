-- Lists sagas that do not progress, by kind: those that need attention, and those that have been
-- due for $1 milliseconds and are not taken. Each kind is counted up to $2, with the time of its
-- first saga.
WITH RECURSIVE now AS MATERIALIZED (
    SELECT coalesce($4::timestamptz, clock_timestamp()) AS at
), kind (name, version) AS (
    -- Steps from one kind to the next in the index, without reading all their sagas.
    (SELECT name, version FROM hapax.saga WHERE wake_at IS NOT NULL ORDER BY name, version LIMIT 1)
    UNION ALL
    SELECT next.name, next.version
    FROM kind
    CROSS JOIN LATERAL (
        SELECT saga.name, saga.version
        FROM hapax.saga AS saga
        WHERE saga.wake_at IS NOT NULL AND (saga.name, saga.version) > (kind.name, kind.version)
        ORDER BY saga.name, saga.version
        LIMIT 1
    ) AS next
)
SELECT name, version, count(*) AS number, min(created_at) AS since, true AS is_asking
FROM (
    SELECT name, version, tenant, created_at
    FROM hapax.saga
    WHERE state = 'needs_attention'
    ORDER BY id
    LIMIT $2::int8
) AS asking
WHERE $3::text IS NULL OR tenant = $3::text
GROUP BY name, version
UNION ALL
SELECT kind.name, kind.version, overdue.number, overdue.since, false
FROM kind
CROSS JOIN now
CROSS JOIN LATERAL (
    SELECT count(*) AS number, min(due_at) AS since
    FROM (
        SELECT tenant, greatest(wake_at, lease_until) AS due_at
        FROM hapax.saga AS saga
        WHERE saga.name = kind.name
          AND saga.version = kind.version
          AND wake_at IS NOT NULL
          AND greatest(wake_at, lease_until) < now.at - $1::int8 * interval '1 millisecond'
        ORDER BY greatest(wake_at, lease_until)
        LIMIT $2::int8
    ) AS due
    WHERE $3::text IS NULL OR tenant = $3::text
) AS overdue
WHERE overdue.number > 0
ORDER BY 5 DESC, 1, 2
