-- Locks a key until the transaction ends: first its payload lock ($4), shared, then the lock of the
-- key. Returns false if another transaction has the key, and null if that transaction runs another
-- payload. Its locks are looked at only if no other transaction has this payload lock. This is a
-- separate statement, so that the next one sees what the other transaction committed.
-- Only here: the single writer of SQLite runs one job at a time.
SELECT CASE
           WHEN NOT pg_try_advisory_xact_lock_shared($4::int8) THEN false
           WHEN pg_try_advisory_xact_lock(hapax.key_lock($1::text, $2::text, $3::text)) THEN true
           WHEN NOT pg_try_advisory_xact_lock($4::int8) THEN false
           WHEN hapax.runs_other_payload(
               hapax.key_lock($1::text, $2::text, $3::text), $4::int8) THEN NULL
           ELSE false
       END AS locked
