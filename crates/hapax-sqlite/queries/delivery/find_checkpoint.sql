-- Reads how far a destination is.
-- Only here: the other store says how far behind a part is in one statement.
SELECT frontier, settled
FROM hapax_checkpoint
WHERE destination = ?1
