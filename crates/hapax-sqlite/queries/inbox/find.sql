-- Reads what a known message said, to tell a duplicate from a mismatch.
SELECT payload_hash
FROM hapax_inbox_message
WHERE consumer = ?1 AND message_id = ?2 AND source = ?3
