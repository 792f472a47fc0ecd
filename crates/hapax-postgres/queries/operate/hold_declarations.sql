-- One change of declarations at a time: versions are committed in the order in which they are drawn.
-- Only here: the other store has one process, and nobody beside it who operates.
SELECT pg_advisory_xact_lock('hapax.declaration'::regclass::oid::int4, 0)
