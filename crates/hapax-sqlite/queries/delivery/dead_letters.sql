-- Lists dead letters by position, each with the payload and headers that its destination was
-- offered last.
SELECT event.id, event.event_id, event.type, event.tenant, event.aggregate_type,
       event.aggregate_id, event.sequence, coalesce(delivery.payload, event.payload) AS payload,
       coalesce(delivery.headers, event.headers) AS headers, event.created_at, event.available_at,
       delivery.attempt, delivery.last_error, delivery.changed_at
FROM hapax_delivery AS delivery
JOIN hapax_outbox_event AS event ON event.id = delivery.position
WHERE delivery.destination = ?1
  AND delivery.state = 'dead'
  AND delivery.position > ?2
ORDER BY delivery.position
LIMIT ?3
