-- Reads which consumers accepted some messages, and from which sources: at most $4 rows for each
-- message, filtered by consumer ($2) and source ($3) if these are given.
SELECT asked.message_id, consumer, source, encode(payload_hash, 'hex') AS payload_hash, received_at,
       processed_at, result
FROM unnest($1::text[]) AS asked (message_id)
CROSS JOIN LATERAL (
    SELECT consumer, message_id, source, payload_hash, received_at, processed_at, result
    FROM hapax.inbox_message AS taken
    WHERE taken.message_id = asked.message_id
      AND ($2::text IS NULL OR taken.consumer = $2::text)
      AND ($3::text IS NULL OR taken.source = $3::text)
    ORDER BY consumer, source
    LIMIT $4::int8
) AS taken
ORDER BY asked.message_id, consumer, source
