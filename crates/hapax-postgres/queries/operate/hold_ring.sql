-- Waits for a purge that is under way, and keeps the next one away until the transaction ends: what
-- is to be offered again is not emptied meanwhile.
-- Only here: the other store has one process, and nobody beside it who operates.
SELECT pg_advisory_xact_lock_shared('hapax.outbox_event'::regclass::oid::int4, 0)
