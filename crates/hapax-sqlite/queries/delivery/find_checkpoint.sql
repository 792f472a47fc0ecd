-- Reads how far a destination is.
SELECT frontier, settled
FROM hapax_checkpoint
WHERE destination = ?1
