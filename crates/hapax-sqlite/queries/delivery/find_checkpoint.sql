-- Reads the checkpoint of a destination and its id.
-- Only here: the PostgreSQL store computes the backlog in one statement.
SELECT frontier, settled, epoch, settlement
FROM hapax_checkpoint
WHERE destination = ?1
