-- Lists the live nodes: those that sent a heartbeat or took a partition after ?1. Times after ?2 are
-- ignored, because the clock was set back since.
-- Only here: the PostgreSQL store lists them in the statement that reads the partitions.
SELECT name
FROM hapax_node
WHERE seen_at > ?1 AND seen_at < ?2
UNION
SELECT node
FROM hapax_checkpoint
WHERE node IS NOT NULL AND taken_at > ?1 AND taken_at < ?2
