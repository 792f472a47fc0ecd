-- Lets the lowest unfinished delivery of a key fall due if it is blocked, with no attempt made.
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
