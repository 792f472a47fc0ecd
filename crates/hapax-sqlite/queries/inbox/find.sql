-- Reads the payload hash of an accepted message, to distinguish a duplicate from a mismatch.
SELECT payload_hash
FROM hapax_inbox_message
WHERE consumer = ?1 AND message_id = ?2 AND source = ?3
