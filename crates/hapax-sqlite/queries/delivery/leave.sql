-- Lets everything go that a node holds.
UPDATE hapax_checkpoint SET node = NULL
WHERE node = ?1
