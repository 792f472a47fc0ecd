-- Counts the events that match a filter among the $10 newest with an id from $9 and below $8, and
-- sums up the ids that each segment has in that range. Both go by the primary keys of the segments,
-- so the cost does not grow with the number of events. A segment may still hold an event of its
-- previous rotation, whose ids are far below.
-- Only here: the SQLite store belongs to one process, and has no admin API.
WITH looked AS MATERIALIZED (
    SELECT event_id, type, tenant, aggregate_type, aggregate_id, created_at
    FROM hapax.outbox_event
    WHERE id < $8::int8 AND id >= $9::int8
    ORDER BY id DESC
    LIMIT $10::int8
)
SELECT (SELECT count(*) FROM looked) AS looked,
       (SELECT count(*)
        FROM looked
        WHERE ($1::text IS NULL OR type LIKE $1::text)
          AND ($2::text IS NULL OR tenant = $2::text)
          AND ($3::text IS NULL OR aggregate_type = $3::text)
          AND ($4::text IS NULL OR aggregate_id = $4::text)
          AND ($5::text IS NULL OR event_id = $5::text::uuid)
          AND ($6::timestamptz IS NULL OR created_at >= $6::timestamptz)
          AND ($7::timestamptz IS NULL OR created_at < $7::timestamptz)) AS number,
       coalesce(sum(last.id - first.id + 1), 0)::int8 AS ids
FROM generate_series(0, 7) AS part (segment)
CROSS JOIN LATERAL (
    SELECT id
    FROM hapax.outbox_event
    WHERE segment = part.segment::int2 AND id < $8::int8 AND id >= $9::int8
    ORDER BY id DESC
    LIMIT 1
) AS last
CROSS JOIN LATERAL (
    SELECT id
    FROM hapax.outbox_event
    WHERE segment = part.segment::int2 AND id <= last.id
      AND id >= greatest($9::int8, last.id >> 36 << 36)
    ORDER BY id
    LIMIT 1
) AS first
