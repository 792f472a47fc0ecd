-- Releases the lock by which producers know that a relay sleeps.
-- Only here, as sleep.
SELECT pg_advisory_unlock('hapax.outbox_event'::regclass::oid::int4, 1)
