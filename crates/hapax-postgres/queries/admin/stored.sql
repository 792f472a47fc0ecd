-- Counts the sagas by state, up to $1 each, and estimates the number of stored keys: the count of
-- the last vacuum or analyze, or -1.
SELECT asked.state, counted.number, counted.looked
FROM unnest($3::text[]) AS asked (state)
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE $2::text IS NULL OR tenant = $2::text) AS number,
           count(*) AS looked
    FROM (
        SELECT tenant FROM hapax.saga WHERE saga.state = asked.state ORDER BY id LIMIT $1::int8
    ) AS found
) AS counted
UNION ALL
SELECT '', (SELECT reltuples::int8 FROM pg_class WHERE oid = 'hapax.idempotency_key'::regclass), 0
