-- Reads the epoch, the number of the last settlement and the frontier of a destination, before a
-- settlement is written.
SELECT epoch, settlement, frontier
FROM hapax_checkpoint
WHERE destination = ?1
