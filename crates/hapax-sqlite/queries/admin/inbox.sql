-- Reads messages from the newest to the oldest, from a time (?1) on. The caller applies its filter
-- and stops after a number of messages.
SELECT consumer, message_id, source, lower(hex(payload_hash)) AS payload_hash, received_at,
       processed_at, result
FROM hapax_inbox_message INDEXED BY hapax_inbox_message_received
WHERE received_at <= ?1
ORDER BY received_at DESC
