-- Deletes the records of purges up to a number. Nodes that have not read them clear their caches.
-- Only here: the PostgreSQL store does it in a function of its schema.
DELETE FROM hapax_key_purge
WHERE number <= ?1
