-- Lists the events up to ?1 that no delivery needs; the caller stops when it has enough. The newest
-- event is left out, because its id must not be used again.
-- Only here: the PostgreSQL store finds and deletes them in one statement.
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
