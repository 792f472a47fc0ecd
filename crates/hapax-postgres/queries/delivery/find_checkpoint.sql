-- Reads how far a destination is.
SELECT frontier, settled
FROM hapax.checkpoint
WHERE destination = $1::text
