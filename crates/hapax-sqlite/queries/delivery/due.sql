-- Reads the due deliveries, the longest due first. The index contains scheduled and retrying
-- deliveries; blocked and dead ones are never due. If an operator has edited the payload or
-- the headers, these are read.
SELECT event.id, event.event_id, event.type, event.tenant, event.aggregate_type,
       event.aggregate_id, event.sequence, coalesce(delivery.payload, event.payload) AS payload,
       coalesce(delivery.headers, event.headers) AS headers, event.created_at, event.available_at,
       delivery.state, delivery.attempt, delivery.next_at, delivery.order_key,
       coalesce(delivery.manual, 0) AS manual
FROM hapax_delivery AS delivery
JOIN hapax_outbox_event AS event ON event.id = delivery.position
WHERE delivery.destination = ?1
  AND delivery.state IN ('scheduled', 'retrying')
  AND delivery.next_at <= ?2
ORDER BY delivery.next_at, delivery.position
