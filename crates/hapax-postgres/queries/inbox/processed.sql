-- Completes the row of a message at the end of the transaction that accepted it: when its effect was
-- written, and the result that the consumer recorded. A row that is complete belongs to another
-- transaction, if the handler has rolled the acceptance back to a savepoint. The transaction must be
-- open: see session/require_open.
UPDATE hapax.inbox_message
SET processed_at = coalesce($4::timestamptz, clock_timestamp()), result = $5::text
WHERE consumer = $1::text AND message_id = $2::text AND source = $3::text AND processed_at IS NULL
  AND (CASE
          WHEN current_setting('transaction_deferrable')
                  <> current_setting('default_transaction_deferrable')
              OR current_setting('hapax.transaction', true) = 'open' THEN 'on'
          ELSE 'a statement has ended the transaction'
      END)::bool
