-- Finds when the next delivery is due. Deliveries with a running attempt do not count.
SELECT next_at
FROM hapax_delivery
WHERE destination = ?1
  AND state IN ('scheduled', 'retrying')
  AND begun_at IS NULL
ORDER BY next_at, position
LIMIT 1
