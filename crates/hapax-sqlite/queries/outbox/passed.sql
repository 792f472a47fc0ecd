-- Finds a batch of old events that nobody needs: every known destination has passed them, no
-- delivery waits for them, and none is the newest, whose id must not be given again. Without a
-- destination nothing is passed. Ids and ages rise together, so the oldest ids are looked at.
-- Only here: the other store finds and deletes in one statement.
SELECT id
FROM (
    SELECT id, created_at
    FROM hapax_outbox_event AS event
    WHERE id <= (SELECT min(frontier) FROM hapax_checkpoint)
      AND id < (SELECT max(id) FROM hapax_outbox_event)
      AND NOT EXISTS (
          SELECT 1
          FROM hapax_delivery AS delivery
          WHERE delivery.position = event.id
            AND delivery.state IN ('scheduled', 'retrying', 'blocked', 'dead')
      )
    ORDER BY id
    LIMIT ?2
)
WHERE created_at <= ?1
