-- Reads the deliveries of a partition (?1) that are due next, of which ?2 are visited, and which of
-- them are retries.
-- Only here: the PostgreSQL store reads them in the statements that need them.
SELECT position, state, attempt, next_at, order_key, last_error, changed_at
FROM hapax_delivery INDEXED BY hapax_delivery_due
WHERE destination = ?1 AND state IN ('scheduled', 'retrying')
ORDER BY next_at, position
LIMIT ?2
