-- Reads one delivery with its event, for a list. A finished delivery whose event is deleted is left
-- out.
-- Only here: the PostgreSQL store reads it in the statement that lists the deliveries.
SELECT delivery.destination, delivery.position, delivery.state, delivery.attempt, delivery.next_at,
       delivery.order_key, delivery.last_error, delivery.changed_at, delivery.reason,
       event.event_id, event.type, event.tenant, event.aggregate_type, event.aggregate_id,
       event.created_at
FROM hapax_delivery AS delivery
JOIN hapax_outbox_event AS event ON event.id = delivery.position
WHERE delivery.destination = ?1 AND delivery.position = ?2
