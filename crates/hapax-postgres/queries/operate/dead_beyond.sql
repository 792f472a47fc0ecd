-- The next dead letters of a part beyond a position, so many of them ($10), and whether the filter
-- fits each.
-- Only here: the other store has one process, and nobody beside it who operates.
SELECT looked.position,
       (event.id IS NOT NULL
        AND ($1::text IS NULL OR type LIKE $1::text)
        AND ($2::text IS NULL OR tenant = $2::text)
        AND ($3::text IS NULL OR aggregate_type = $3::text)
        AND ($4::text IS NULL OR aggregate_id = $4::text)
        AND ($5::text IS NULL OR event_id = $5::text::uuid)
        AND ($6::timestamptz IS NULL OR created_at >= $6::timestamptz)
        AND ($7::timestamptz IS NULL OR created_at < $7::timestamptz)
        AND looked.attempt >= $11::int4
        AND ($12::text IS NULL OR strpos(lower(looked.last_error), lower($12::text)) > 0))
           IS TRUE AS fits
FROM (
    SELECT position, attempt, last_error
    FROM hapax.delivery
    WHERE destination = $8::text AND state = 'dead' AND position > $9::int8
    ORDER BY position
    LIMIT $10::int8
) AS looked
LEFT JOIN hapax.outbox_event AS event
    ON event.id = looked.position
   AND event.segment IN (((looked.position >> 36) & 7)::int2, -1)
ORDER BY looked.position
