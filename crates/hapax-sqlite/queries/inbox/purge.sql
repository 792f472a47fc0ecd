-- Deletes a batch of messages that are so old that no sender will send them again.
DELETE FROM hapax_inbox_message
WHERE (consumer, message_id, source) IN (
    SELECT consumer, message_id, source
    FROM hapax_inbox_message
    WHERE received_at <= ?1
    ORDER BY received_at
    LIMIT ?2
)
