-- Reads how far a destination is, and who wrote that.
-- Only here: the other store says how far behind a part is in one statement.
SELECT frontier, settled, epoch, settlement
FROM hapax_checkpoint
WHERE destination = ?1
