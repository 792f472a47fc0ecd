-- Counts the dead letters, no further than a bound that keeps it quick, by a partial index.
SELECT count(*)
FROM (
    SELECT 1
    FROM hapax.delivery
    WHERE destination = $1::text AND state = 'dead'
    ORDER BY position
    LIMIT $2::int8
) AS dead
