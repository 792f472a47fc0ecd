-- Locks out other movers of the same table until the transaction ends: two at once could reverse
-- the order of the events of a key. Divides by zero if another mover has the lock.
-- Only here: the SQLite store has no table sources.
SELECT 1 / pg_try_advisory_xact_lock(hashtext('hapax.set_aside'), $1::int4)::int4
