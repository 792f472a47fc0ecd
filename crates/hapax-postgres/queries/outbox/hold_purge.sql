-- Locks out other purges and the opening of destinations until the transaction ends: a new
-- destination starts with every event that exists. Divides by zero if one of them is running.
-- Only here: the single writer of SQLite runs one job at a time.
SELECT 1 / pg_try_advisory_xact_lock('hapax.outbox_event'::regclass::oid::int4, 0)::int4
