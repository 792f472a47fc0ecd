-- Gives up all partitions of a node.
UPDATE hapax_checkpoint SET node = NULL
WHERE node = ?1
