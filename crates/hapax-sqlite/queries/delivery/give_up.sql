-- Gives up a partition. No node owns it then; the epoch stays until the next owner raises it.
UPDATE hapax_checkpoint SET node = NULL
WHERE destination = ?1 AND epoch = ?2
