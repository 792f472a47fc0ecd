-- Counts the parked deliveries of a partition (?1), up to ?2.
-- Only here: the PostgreSQL store counts them in the statement that reads the partitions.
SELECT count(*) AS number
FROM (
    SELECT position
    FROM hapax_delivery INDEXED BY hapax_delivery_parked
    WHERE destination = ?1 AND state IN ('scheduled', 'retrying', 'blocked')
    ORDER BY position
    LIMIT ?2
) AS waiting
