-- Reads the payload hash of an accepted message, to distinguish a duplicate from a mismatch.
SELECT payload_hash
FROM hapax.inbox_message
WHERE consumer = $1::text AND message_id = $2::text AND source = $3::text
