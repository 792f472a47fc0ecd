-- Accepts a message once. The row is written in the transaction of the effect.
INSERT INTO hapax_inbox_message
    (consumer, message_id, source, payload_hash, received_at, processed_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?5)
ON CONFLICT (consumer, message_id, source) DO NOTHING
