-- Makes a blocked delivery due if no unfinished delivery of its order key is before it any more.
-- Only here: the PostgreSQL store releases the first delivery of a key after the rest is written.
UPDATE hapax_delivery SET
    state = 'retrying',
    next_at = ?3
WHERE destination = ?1
  AND position = ?2
  AND state = 'blocked'
  AND NOT EXISTS (
      SELECT 1
      FROM hapax_delivery AS earlier INDEXED BY hapax_delivery_unfinished
      WHERE earlier.destination = ?1
        AND earlier.order_key = hapax_delivery.order_key
        AND earlier.position < ?2
        AND earlier.state IN ('retrying', 'blocked', 'dead')
  )
