-- Locks a key like lock, and is the guard of its pipeline, as session/require_transaction is: if no
-- transaction is open, it makes the session read-only, so that later statements write nothing.
-- It reads no table but the catalog's list of databases, so it waits for no lock.
-- Only here: the single writer of SQLite runs one job at a time.
SELECT CASE current_setting('transaction_deferrable')
           WHEN 'off' THEN set_config('default_transaction_read_only', 'on', false)
       END AS guard,
       CASE
           WHEN NOT pg_try_advisory_xact_lock_shared($4::int8) THEN false
           WHEN pg_try_advisory_xact_lock(hapax.key_lock($1::text, $2::text, $3::text)) THEN true
           WHEN NOT pg_try_advisory_xact_lock($4::int8) THEN false
           WHEN hapax.runs_other_payload(
               hapax.key_lock($1::text, $2::text, $3::text), $4::int8) THEN NULL
           ELSE false
       END AS locked
