-- Makes the session read-only if no transaction is open, so that statements which were sent together
-- with a BEGIN that has failed write nothing. The connection is closed afterwards. A transaction that
-- is open is deferrable, which has no effect on one that writes.
-- Only here: the statements of the SQLite store do not overtake one another.
SELECT set_config('default_transaction_read_only', 'on', false)
WHERE current_setting('transaction_deferrable') = 'off'
