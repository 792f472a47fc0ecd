-- Locks the declarations, so that only one transaction changes them at a time, and versions are
-- committed in the order in which they are drawn.
-- Only here: only one transaction of the SQLite store writes at a time.
SELECT pg_advisory_xact_lock('hapax.declaration'::regclass::oid::int4, 0)
