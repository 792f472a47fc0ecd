-- Lists the deliveries that have a row, the newest event first, and visits at most $13 rows. Every
-- row contains the place where the visit ended; if nothing matches, one row contains only that.
--
-- $16 says which index is read: that of dead letters, that of parked deliveries, or that of all
-- rows. The other two branches are not executed. The first two read only columns of their index,
-- which is why the whole row is read after the visit, and compare the destination as a range: see
-- partitions_now.
-- Only here: the SQLite store visits the deliveries of each partition by a separate statement.
WITH looked AS MATERIALIZED (
    SELECT whole.destination, whole.position, whole.state, whole.attempt, whole.next_at,
           whole.order_key, whole.last_error, whole.changed_at, whole.reason
    FROM (
        SELECT found.destination, found.position
        FROM unnest($8::text[]) AS partition (name)
        CROSS JOIN LATERAL (
            (
                SELECT destination, position
                FROM hapax.delivery
                WHERE $16::text = 'dead'
                  AND destination >= partition.name AND destination <= partition.name
                  AND position <= $11::int8
                  AND (position < $11::int8 OR destination < $12::text)
                  AND state = 'dead'
                ORDER BY destination DESC, position DESC
                LIMIT $13::int8
            ) UNION ALL (
                SELECT destination, position
                FROM hapax.delivery
                WHERE $16::text = 'parked'
                  AND destination >= partition.name AND destination <= partition.name
                  AND position <= $11::int8
                  AND (position < $11::int8 OR destination < $12::text)
                  AND state IN ('scheduled', 'retrying', 'blocked')
                ORDER BY destination DESC, position DESC
                LIMIT $13::int8
            ) UNION ALL (
                SELECT destination, position
                FROM hapax.delivery
                WHERE $16::text = 'all'
                  AND destination = partition.name
                  AND position <= $11::int8
                  AND (position < $11::int8 OR destination < $12::text)
                ORDER BY position DESC
                LIMIT $13::int8
            )
        ) AS found
        ORDER BY found.position DESC, found.destination DESC
        LIMIT $13::int8
    ) AS newest
    CROSS JOIN LATERAL (
        SELECT destination, position, state, attempt, next_at, order_key, last_error, changed_at,
               reason
        FROM hapax.delivery AS row
        WHERE row.destination = newest.destination AND row.position = newest.position
        LIMIT 1
    ) AS whole
), matching AS (
    SELECT looked.destination, looked.position, looked.state, looked.attempt, looked.next_at,
           looked.order_key, looked.last_error, looked.changed_at, looked.reason, event.event_id,
           event.type, event.tenant, event.aggregate_type, event.aggregate_id, event.created_at
    FROM looked
    JOIN hapax.outbox_event AS event
        ON event.id = looked.position
       AND event.segment IN (((looked.position >> 36) & 7)::int2, -1)
    WHERE ($1::text IS NULL OR type LIKE $1::text)
      AND ($2::text IS NULL OR tenant = $2::text)
      AND ($3::text IS NULL OR aggregate_type = $3::text)
      AND ($4::text IS NULL OR aggregate_id = $4::text)
      AND ($5::text IS NULL OR event_id = $5::text::uuid)
      AND ($6::timestamptz IS NULL OR created_at >= $6::timestamptz)
      AND ($7::timestamptz IS NULL OR created_at < $7::timestamptz)
      AND attempt >= $9::int4
      AND ($10::text IS NULL OR strpos(lower(last_error), lower($10::text)) > 0)
      AND state = ANY ($15::text[])
    ORDER BY position DESC, destination DESC
    LIMIT $14::int8
), ends AS (
    SELECT (SELECT count(*) FROM looked) AS count, position, destination
    FROM looked
    ORDER BY position, destination
    LIMIT 1
)
SELECT ends.count AS looked, ends.position AS end_position, ends.destination AS end_destination,
       matching.destination, matching.position, state, attempt, next_at, order_key, last_error,
       changed_at, reason, event_id::text, type, tenant, aggregate_type, aggregate_id, created_at
FROM ends
LEFT JOIN matching ON true
ORDER BY matching.position DESC, matching.destination DESC
