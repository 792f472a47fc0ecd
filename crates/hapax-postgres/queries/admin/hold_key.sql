-- Locks a key until the transaction ends; returns false if another transaction has the lock.
-- Only here: the single writer of SQLite runs one job at a time.
SELECT pg_try_advisory_xact_lock(hapax.key_lock($1::text, $2::text, $3::text)) AS locked
