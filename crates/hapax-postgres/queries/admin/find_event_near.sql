-- Finds an event by its id among the $3 events on either side of a position ($2).
SELECT event.id, event.event_id::text, event.type, event.tenant, event.aggregate_type,
       event.aggregate_id, event.sequence, event.payload, event.headers, event.created_at,
       event.available_at
FROM (
    (
        SELECT id, event_id
        FROM hapax.outbox_event
        WHERE id >= $2::int8
        ORDER BY id
        LIMIT $3::int8
    ) UNION ALL (
        SELECT id, event_id
        FROM hapax.outbox_event
        WHERE id < $2::int8
        ORDER BY id DESC
        LIMIT $3::int8
    )
) AS near
JOIN hapax.outbox_event AS event
    ON event.id = near.id AND event.segment IN (((near.id >> 36) & 7)::int2, -1)
WHERE near.event_id = $1::text::uuid
  AND ($4::text IS NULL OR event.tenant = $4::text)
ORDER BY event.id
LIMIT 1
