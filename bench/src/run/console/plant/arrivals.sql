-- Inserts first offers that arrived, about twenty per row. The rows of `search` end at its frontier,
-- which lags. A partition of `hooks` has about two of eight requests, so its rows contain many ranges.
INSERT INTO hapax.arrival (partition, positions, first, last, started_at, duration_ms, status)
SELECT partition, first || '-' || first + 19, first, first + 19, plant.at(n + 19), 12, 204
FROM (
    SELECT 'mail' AS partition, n, plant.position(n) AS first
    FROM generate_series($1::bigint, $2::bigint - 1, 20) AS series (n)
    UNION ALL
    SELECT 'search', n, plant.position(n - plant.lag())
    FROM generate_series(greatest($1::bigint, plant.lag()), $2::bigint - 1, 20) AS series (n)
) AS every
UNION ALL
SELECT partition, hapax.ranges(range_agg(int8range(position, position, '[]'))), min(position), max(position),
       plant.at(max(n)), 12, 204
FROM (
    SELECT 'hooks/' || (plant.shard(n) % 4)::text AS partition, n / 80 AS run, n, plant.position(n) AS position
    FROM generate_series($1::bigint, $2::bigint - 1) AS series (n)
) AS shared
GROUP BY partition, run
