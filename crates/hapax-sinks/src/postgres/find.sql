-- Reads the payload hashes of known messages, to distinguish duplicates from mismatches.
SELECT message_id, payload_hash
FROM hapax.inbox_message
WHERE consumer = $1::text AND source = $2::text AND message_id = ANY ($3::text[])
