-- Deletes where a removed destination started, so that one that is created under the same name starts
-- anew.
-- Only here: the PostgreSQL store deletes all rows of the partitions in one statement.
DELETE FROM hapax_start
WHERE destination = ?1
