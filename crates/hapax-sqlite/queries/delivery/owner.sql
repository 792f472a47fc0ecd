-- Returns the node that owns a partition.
-- Only here: the PostgreSQL store reads it in the statement that takes the partition.
SELECT node
FROM hapax_checkpoint
WHERE destination = ?1
