-- Reads one delivery that has a row, with whose event it is.
-- Only here: the other store has one process, and nobody beside it who operates.
SELECT state, event.tenant
FROM hapax.delivery AS delivery
LEFT JOIN hapax.outbox_event AS event
    ON event.id = delivery.position
   AND event.segment IN (((delivery.position >> 36) & 7)::int2, -1)
WHERE delivery.destination = $1::text AND delivery.position = $2::int8
