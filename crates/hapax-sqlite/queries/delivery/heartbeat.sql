-- Lists the live nodes with the partitions that they own and the destinations that they know. A
-- node is live if it sent a heartbeat or took a partition after ?1. Times after ?2 are ignored,
-- because the clock was set back since.
SELECT living.name, held.destination, held.epoch,
       (
           SELECT destinations
           FROM hapax_node
           WHERE name = living.name AND seen_at > ?1 AND seen_at < ?2
       ) AS destinations
FROM (
    SELECT name
    FROM hapax_node
    WHERE seen_at > ?1 AND seen_at < ?2
    UNION
    SELECT node
    FROM hapax_checkpoint
    WHERE node IS NOT NULL AND taken_at > ?1 AND taken_at < ?2
) AS living
LEFT JOIN hapax_checkpoint AS held ON held.node = living.name
ORDER BY living.name, held.destination
