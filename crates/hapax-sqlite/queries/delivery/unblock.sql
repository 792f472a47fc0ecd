-- Makes a delivery due that was to be blocked, when nothing unfinished stands before it any more.
-- Only here: the other store lets the lowest of a key go when the rest is written.
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
