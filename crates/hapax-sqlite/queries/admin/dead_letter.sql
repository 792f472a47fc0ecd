-- Reads one dead letter with the payload and headers that its destination was offered last.
-- Only here: the PostgreSQL store uses the statement that lists dead letters.
SELECT event.id, event.event_id, event.type, event.tenant, event.aggregate_type,
       event.aggregate_id, event.sequence, coalesce(delivery.payload, event.payload) AS payload,
       coalesce(delivery.headers, event.headers) AS headers, event.created_at, event.available_at
FROM hapax_delivery AS delivery
JOIN hapax_outbox_event AS event ON event.id = delivery.position
WHERE delivery.destination = ?1 AND delivery.position = ?2 AND delivery.state = 'dead'
