-- Deletes the checkpoint and the owner of a partition: its owner is fenced, and the outbox no longer
-- waits for it.
-- Only here: the PostgreSQL store deletes all rows of the partitions in one statement.
DELETE FROM hapax_checkpoint
WHERE destination = ?1
