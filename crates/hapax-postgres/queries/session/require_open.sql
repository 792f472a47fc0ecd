-- Fails if a statement of the handler has ended the transaction, or if one has failed. A transaction of
-- the store's own driver is deferrable, and one of sqlx, or with a pooler, has a local setting. Neither
-- is so after its COMMIT or ROLLBACK, also with AND CHAIN, or in a transaction that the handler has
-- begun itself. Savepoints change neither. The server's log shows the text that is not a boolean.
-- The statements that store a response, one event, or the result of a message have the same condition.
-- Only here: the SQLite store refuses a statement that would end its transaction.
SELECT (CASE
           WHEN current_setting('transaction_deferrable')
                   <> current_setting('default_transaction_deferrable')
               OR current_setting('hapax.transaction', true) = 'open' THEN 'on'
           ELSE 'a statement has ended the transaction'
       END)::bool AS is_open
