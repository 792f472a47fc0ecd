-- Deletes a partition of a removed destination, after its checkpoint.
-- Only here: the PostgreSQL store deletes all rows of the partitions in one statement.
DELETE FROM hapax_destination
WHERE name = ?1
