-- Counts the dead letters with a partial index.
-- Only here: the PostgreSQL store computes the backlog in one statement.
SELECT count(*)
FROM hapax_delivery INDEXED BY hapax_delivery_dead
WHERE destination = ?1 AND state = 'dead'
