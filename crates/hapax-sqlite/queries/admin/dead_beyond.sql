-- Visits the dead letters of a partition (?1) after a position (?2) and before another (?3), with
-- what the filter needs of their events. It only visits those that were dead when they were counted
-- for a job: a letter that died since has a higher number than ?4. The caller stops when it has
-- enough.
SELECT delivery.position, delivery.attempt, delivery.last_error, event.event_id, event.type,
       event.tenant, event.aggregate_type, event.aggregate_id, event.created_at
FROM hapax_delivery AS delivery INDEXED BY hapax_delivery_dead
LEFT JOIN hapax_outbox_event AS event ON event.id = delivery.position
WHERE delivery.destination = ?1
  AND delivery.state = 'dead'
  AND delivery.position > ?2
  AND delivery.position < ?3
  AND coalesce(delivery.death, 0) <= ?4
ORDER BY delivery.position
