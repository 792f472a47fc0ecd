-- Reads up to where every known destination is: nowhere while there is none.
-- Only here: the other store finds and deletes in one statement.
SELECT coalesce(min(frontier), 0)
FROM hapax_checkpoint
