-- Reads the state of one delivery that has a row, and the tenant of its event.
SELECT delivery.state, event.tenant
FROM hapax_delivery AS delivery
LEFT JOIN hapax_outbox_event AS event ON event.id = delivery.position
WHERE delivery.destination = ?1 AND delivery.position = ?2
