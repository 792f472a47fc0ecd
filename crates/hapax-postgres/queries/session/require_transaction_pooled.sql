-- Ends the connection of the pooler to the server if no transaction is open, so that statements which
-- were sent together with a BEGIN that has failed do not run: see require_transaction. A setting of
-- the session would apply to the next client of that connection.
-- Only here: the statements of the SQLite store do not overtake one another.
SELECT pg_terminate_backend(pg_backend_pid())
WHERE current_setting('transaction_deferrable') = 'off'
