-- Counts the parked deliveries that are not dead, with a partial index.
-- Only here: the PostgreSQL store computes the backlog in one statement.
SELECT count(*)
FROM hapax_delivery INDEXED BY hapax_delivery_parked
WHERE destination = ?1 AND state IN ('scheduled', 'retrying', 'blocked')
