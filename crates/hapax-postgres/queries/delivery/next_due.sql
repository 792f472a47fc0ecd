-- Finds when the next delivery is due. Deliveries with a running attempt do not count.
SELECT next_at
FROM hapax.delivery
WHERE destination = $1::text
  AND state IN ('scheduled', 'retrying')
  AND begun_at IS NULL
ORDER BY next_at, position
LIMIT 1
