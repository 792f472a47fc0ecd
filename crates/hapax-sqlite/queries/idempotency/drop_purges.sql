-- Deletes what was noted of purges up to a number: nodes that have not read it forget everything.
-- Only here: the other store does it in a function of the database.
DELETE FROM hapax_key_purge
WHERE number <= ?1
