-- Finds when the next delivery falls due: one that is on the wire is not waiting.
SELECT next_at
FROM hapax.delivery
WHERE destination = $1::text
  AND state IN ('scheduled', 'retrying')
  AND begun_at IS NULL
ORDER BY next_at, position
LIMIT 1
