-- Lists the events up to ?1 that no delivery waits for, as far as it is stepped; the newest is left
-- out, for its id must not be given again.
-- Only here: the other store finds and deletes in one statement.
SELECT id, created_at
FROM hapax_outbox_event AS event
WHERE id <= ?1
  AND id < (SELECT max(id) FROM hapax_outbox_event)
  AND NOT EXISTS (
      SELECT 1
      FROM hapax_delivery AS delivery
      WHERE delivery.position = event.id
        AND delivery.state IN ('scheduled', 'retrying', 'blocked', 'dead')
  )
ORDER BY id
