-- Takes the lock that stands for a key until the transaction ends; false when another has it.
-- A statement of its own: the next one reads what that other committed.
-- Only here: a single writer does one thing at a time.
SELECT pg_try_advisory_xact_lock(hapax.key_lock($1::text, $2::text, $3::text))
