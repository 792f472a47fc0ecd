-- The same as lock_in_transaction with a pooler: if no transaction is open, it ends the connection of
-- the pooler to the server, as session/require_transaction_pooled does.
-- Only here: the single writer of SQLite runs one job at a time.
SELECT CASE current_setting('transaction_deferrable')
           WHEN 'off' THEN pg_terminate_backend(pg_backend_pid())
       END AS guard,
       CASE
           WHEN NOT pg_try_advisory_xact_lock_shared($4::int8) THEN false
           WHEN pg_try_advisory_xact_lock(hapax.key_lock($1::text, $2::text, $3::text)) THEN true
           WHEN NOT pg_try_advisory_xact_lock($4::int8) THEN false
           WHEN hapax.runs_other_payload(
               hapax.key_lock($1::text, $2::text, $3::text), $4::int8) THEN NULL
           ELSE false
       END AS locked
