-- Locks a key like lock, and is the guard of its pipeline at the same time: if no transaction is
-- open, the statements behind it write nothing. With a pooler ($4) it ends the connection to the
-- server, as session/require_transaction_pooled does, and without one it makes the session
-- read-only, as session/require_transaction does. It reads no table, so it waits for no lock.
-- Only here: the single writer of SQLite runs one job at a time.
SELECT CASE
           WHEN current_setting('transaction_deferrable') = 'on' THEN NULL
           WHEN $4::bool THEN pg_terminate_backend(pg_backend_pid())::text
           ELSE set_config('default_transaction_read_only', 'on', false)
       END AS guard,
       pg_try_advisory_xact_lock(hapax.key_lock($1::text, $2::text, $3::text)) AS locked
