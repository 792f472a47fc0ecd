-- Reads the oldest dead letters of a partition (?1), at most ?2.
-- Only here: the PostgreSQL store reads them in the statements that need them.
SELECT position, state, attempt, next_at, order_key, last_error, changed_at
FROM hapax_delivery INDEXED BY hapax_delivery_dead
WHERE destination = ?1 AND state = 'dead'
ORDER BY position
LIMIT ?2
