-- Reads who owns a destination, and what it has settled last, before anything is written in its name.
SELECT epoch, settlement
FROM hapax_checkpoint
WHERE destination = ?1
