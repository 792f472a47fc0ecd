-- Waits for a purge that is under way, and keeps the next one away until the transaction ends: what
-- a new destination begins with is there when it is opened, or gone.
-- Only here: a single writer does one thing at a time.
SELECT pg_advisory_xact_lock_shared('hapax.outbox_event'::regclass::oid::int4, 0)
