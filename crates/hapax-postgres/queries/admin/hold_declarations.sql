-- Locks the declarations, so that only one transaction changes them at a time, and versions are
-- committed in the order in which they are drawn.
-- Only here: the SQLite store belongs to one process, and has no admin API.
SELECT pg_advisory_xact_lock('hapax.declaration'::regclass::oid::int4, 0)
