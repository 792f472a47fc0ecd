-- Counts the dead letters, by a partial index.
SELECT count(*)
FROM hapax_delivery INDEXED BY hapax_delivery_dead
WHERE destination = ?1 AND state = 'dead'
