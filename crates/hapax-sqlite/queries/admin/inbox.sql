-- Reads messages from the newest to the oldest, after a time (?1) and the message of that time with
-- this key (?2 to ?4). The caller applies its filter and stops after a number of messages.
SELECT consumer, message_id, source, lower(hex(payload_hash)) AS payload_hash, received_at,
       processed_at, result
FROM hapax_inbox_message INDEXED BY hapax_inbox_message_received
WHERE (received_at, consumer, message_id, source) < (?1, ?2, ?3, ?4)
ORDER BY received_at DESC, consumer DESC, message_id DESC, source DESC
