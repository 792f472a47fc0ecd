-- Makes deliveries due that were to be blocked, when nothing unfinished stands before them any more.
UPDATE hapax.delivery AS delivery SET
    state = 'retrying',
    next_at = $3::timestamptz
FROM unnest($2::int8[]) AS parked (position)
WHERE delivery.destination = $1::text
  AND delivery.position = parked.position
  AND delivery.state = 'blocked'
  AND NOT EXISTS (
      SELECT 1
      FROM hapax.delivery AS earlier
      WHERE earlier.destination = $1::text
        AND earlier.order_key = delivery.order_key
        AND earlier.position < delivery.position
        AND earlier.state IN ('retrying', 'blocked', 'dead')
  )
