-- Makes the first unfinished delivery of an order key due if it is blocked, with no attempts
-- counted.
UPDATE hapax_delivery SET
    state = 'retrying',
    attempt = 0,
    next_at = ?3,
    changed_at = ?3
WHERE destination = ?1
  AND state = 'blocked'
  AND position = (
      SELECT min(position)
      FROM hapax_delivery INDEXED BY hapax_delivery_unfinished
      WHERE destination = ?1
        AND order_key = ?2
        AND state IN ('retrying', 'blocked', 'dead')
  )
