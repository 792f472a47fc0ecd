-- Returns the activity since a time ($1; $4 is approximately the first event since then), the
-- latest first, from at most $2 rows of each kind, with the number of visited rows and the time of
-- the oldest of them: committed events and claimed keys, by their present state, of one tenant or
-- all ($3); successful deliveries and failed attempts, by partition, of these partitions ($5). Only
-- committed events are visible. Positions are counted in their text: one for each run, plus the
-- additional ones of longer runs; parsing them into a set would cost ten times as much.
-- Only here: the SQLite store reads each kind of activity by a separate statement.
WITH event AS MATERIALIZED (
    SELECT id, tenant, created_at
    FROM hapax.outbox_event
    WHERE id >= $4::int8 AND segment <> -1
    ORDER BY id DESC
    LIMIT $2::int8
), arrived AS MATERIALIZED (
    SELECT partition, positions, first, last, started_at
    FROM hapax.arrival
    WHERE started_at >= $1::timestamptz
    ORDER BY started_at DESC
    LIMIT $2::int8
), tried AS MATERIALIZED (
    SELECT destination, outcome, started_at
    FROM (
        SELECT destination, outcome, started_at
        FROM hapax.attempt
        ORDER BY id DESC
        LIMIT $2::int8
    ) AS last
    WHERE started_at >= $1::timestamptz
), claimed AS MATERIALIZED (
    SELECT state, tenant, created_at
    FROM hapax.idempotency_key
    WHERE created_at >= $1::timestamptz
    ORDER BY created_at DESC
    LIMIT $2::int8
)
SELECT 'committed' AS what, '' AS name,
       count(*) FILTER (WHERE $3::text IS NULL OR tenant = $3::text) AS number, count(*) AS looked,
       -- The time of the first event, not the earliest time: one slow transaction would make the
       -- period too long.
       (SELECT created_at FROM event ORDER BY id LIMIT 1) AS since
FROM event
UNION ALL
SELECT 'delivered', partition,
       sum(CASE WHEN strpos(positions, ',') = 0 THEN last - first + 1
                ELSE length(positions) - length(replace(positions, ',', '')) + 1 + (
                    SELECT coalesce(sum(split_part(run, '-', 2)::int8 - split_part(run, '-', 1)::int8), 0)::int8
                    FROM string_to_table(positions, ',') AS runs (run)
                    WHERE strpos(run, '-') > 0
                ) END)::int8,
       (SELECT count(*) FROM arrived), (SELECT min(started_at) FROM arrived)
FROM arrived
WHERE partition = ANY ($5::text[])
GROUP BY partition
UNION ALL
SELECT CASE outcome WHEN 'delivered' THEN 'delivered' ELSE 'failed' END, destination, count(*),
       (SELECT count(*) FROM tried), (SELECT min(started_at) FROM tried)
FROM tried
WHERE outcome <> 'interrupted' AND destination = ANY ($5::text[])
GROUP BY 1, 2
UNION ALL
SELECT 'claimed', state, count(*) FILTER (WHERE $3::text IS NULL OR tenant = $3::text),
       (SELECT count(*) FROM claimed), (SELECT min(created_at) FROM claimed)
FROM claimed
GROUP BY state
