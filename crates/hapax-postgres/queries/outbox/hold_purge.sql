-- Keeps other purges and the opening of destinations away until the transaction ends: a
-- destination that is seen for the first time begins with every event that is there. Divides by
-- zero when one of them is under way.
-- Only here: a single writer does one thing at a time.
SELECT 1 / pg_try_advisory_xact_lock('hapax.outbox_event'::regclass::oid::int4, 0)::int4
