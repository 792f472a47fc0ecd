-- Accepts a message once. The row is written in the transaction of the effect, and completed at the
-- end of that transaction: see processed.
INSERT INTO hapax_inbox_message (consumer, message_id, source, payload_hash, received_at)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (consumer, message_id, source) DO NOTHING
