-- First offers that arrived, twenty to a row, more or less. What `search` took is of its frontier, which
-- lags. Of eight requests a part of `hooks` takes two or so: its rows are of many runs.
INSERT INTO hapax.arrival (part, positions, first, last, started_at, duration_ms, status)
SELECT part, first || '-' || first + 19, first, first + 19, plant.at(n + 19), 12, 204
FROM (
    SELECT 'mail' AS part, n, plant.position(n) AS first
    FROM generate_series($1::bigint, $2::bigint - 1, 20) AS series (n)
    UNION ALL
    SELECT 'search', n, plant.position(n - plant.lag())
    FROM generate_series(greatest($1::bigint, plant.lag()), $2::bigint - 1, 20) AS series (n)
) AS every
UNION ALL
SELECT part, hapax.ranges(range_agg(int8range(position, position, '[]'))), min(position), max(position),
       plant.at(max(n)), 12, 204
FROM (
    SELECT 'hooks/' || (plant.shard(n) % 4)::text AS part, n / 80 AS run, n, plant.position(n) AS position
    FROM generate_series($1::bigint, $2::bigint - 1) AS series (n)
) AS shared
GROUP BY part, run
