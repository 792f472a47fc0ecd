-- Reads the deliveries of an order key after the one that blocks it, by position. The reader stops
-- at the first one that is not blocked.
-- Only here: the PostgreSQL store reads them together with the due deliveries.
SELECT event.id, event.event_id, event.type, event.tenant, event.aggregate_type,
       event.aggregate_id, event.sequence, coalesce(delivery.payload, event.payload) AS payload,
       coalesce(delivery.headers, event.headers) AS headers, event.created_at, event.available_at,
       delivery.state, delivery.attempt, delivery.next_at, delivery.order_key,
       coalesce(delivery.manual, 0) AS manual
FROM hapax_delivery AS delivery
JOIN hapax_outbox_event AS event ON event.id = delivery.position
WHERE delivery.destination = ?1
  AND delivery.order_key = ?2
  AND delivery.position > ?3
  AND delivery.state IN ('retrying', 'blocked', 'dead')
ORDER BY delivery.position
LIMIT ?4
