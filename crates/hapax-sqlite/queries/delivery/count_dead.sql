-- Counts the dead letters, by a partial index.
SELECT count(*)
FROM hapax_delivery
WHERE destination = ?1 AND state = 'dead'
