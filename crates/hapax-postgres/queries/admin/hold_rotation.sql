-- Waits for a running purge, and locks out the next one until the transaction ends, so that events
-- that are to be delivered again are not deleted meanwhile.
-- Only here: the SQLite store has no segments.
SELECT pg_advisory_xact_lock_shared('hapax.outbox_event'::regclass::oid::int4, 0)
