-- Keeps the last epoch of a partition of a removed destination.
-- Only here: the PostgreSQL store keeps it in a table that is not deleted.
INSERT INTO hapax_former_epoch (partition, epoch)
SELECT destination, epoch
FROM hapax_checkpoint
WHERE destination = ?1
ON CONFLICT (partition) DO UPDATE SET epoch = max(epoch, excluded.epoch)
