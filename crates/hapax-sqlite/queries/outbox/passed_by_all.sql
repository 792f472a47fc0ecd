-- Reads up to where every known destination is: nowhere while there is none.
SELECT coalesce(min(frontier), 0)
FROM hapax_checkpoint
