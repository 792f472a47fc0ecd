-- Completes the row of a message at the end of the transaction that accepted it: when its effect was
-- written, and the result that the consumer recorded. A row that is complete belongs to another
-- transaction, if the handler has rolled the acceptance back to a savepoint.
UPDATE hapax_inbox_message
SET processed_at = ?4, result = ?5
WHERE consumer = ?1 AND message_id = ?2 AND source = ?3 AND processed_at IS NULL
