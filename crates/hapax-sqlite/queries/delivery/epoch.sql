-- Reads who owns a destination, before anything is written in its name.
SELECT epoch
FROM hapax_checkpoint
WHERE destination = ?1
