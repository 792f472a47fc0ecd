-- Deletes where a removed destination started, so that the next one of that name has another start.
-- Only here: the PostgreSQL store deletes all rows of the partitions in one statement.
DELETE FROM hapax_start
WHERE destination = ?1
