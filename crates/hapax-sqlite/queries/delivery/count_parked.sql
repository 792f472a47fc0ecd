-- Counts the parked deliveries that are not dead, and finds the first of them, with a partial
-- index.
-- Only here: the PostgreSQL store computes the backlog in one statement.
SELECT count(*), min(position)
FROM hapax_delivery INDEXED BY hapax_delivery_parked
WHERE destination = ?1 AND state IN ('scheduled', 'retrying', 'blocked')
