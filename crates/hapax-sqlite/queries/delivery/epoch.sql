-- Reads who owns a destination, what it has settled last, and how far it is, before anything is
-- written in its name.
SELECT epoch, settlement, frontier
FROM hapax_checkpoint
WHERE destination = ?1
