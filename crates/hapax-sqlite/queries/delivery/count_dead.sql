-- Counts the dead letters, by a partial index.
-- Only here: the other store says how far behind a part is in one statement.
SELECT count(*)
FROM hapax_delivery INDEXED BY hapax_delivery_dead
WHERE destination = ?1 AND state = 'dead'
