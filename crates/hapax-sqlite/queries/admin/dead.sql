-- Counts the dead letters of a partition (?1), up to ?2.
-- Only here: the PostgreSQL store counts them in the statement that reads the partitions.
SELECT count(*)
FROM (
    SELECT position
    FROM hapax_delivery INDEXED BY hapax_delivery_dead
    WHERE destination = ?1 AND state = 'dead'
    ORDER BY position
    LIMIT ?2
) AS given_up
