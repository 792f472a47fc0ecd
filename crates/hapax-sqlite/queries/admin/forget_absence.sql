-- Deletes the absence of a partition.
-- Only here: the PostgreSQL store deletes all rows of the partitions in one statement.
DELETE FROM hapax_absence
WHERE destination = ?1
