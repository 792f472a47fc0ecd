-- Finds an event by its id among the ?3 events on either side of a position (?2).
SELECT event.id, event.event_id, event.type, event.tenant, event.aggregate_type,
       event.aggregate_id, event.sequence, event.payload, event.headers, event.created_at,
       event.available_at
FROM (
    SELECT id, event_id
    FROM (
        SELECT id, event_id
        FROM hapax_outbox_event
        WHERE id >= ?2
        ORDER BY id
        LIMIT ?3
    )
    UNION ALL
    SELECT id, event_id
    FROM (
        SELECT id, event_id
        FROM hapax_outbox_event
        WHERE id < ?2
        ORDER BY id DESC
        LIMIT ?3
    )
) AS near
CROSS JOIN hapax_outbox_event AS event ON event.id = near.id
WHERE near.event_id = ?1 AND (?4 IS NULL OR event.tenant = ?4)
ORDER BY event.id
LIMIT 1
