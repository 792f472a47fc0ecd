-- Reads which consumers accepted a message (?1), and from which sources: at most ?4 rows, filtered by
-- consumer (?2) and source (?3) if these are given. The key begins with the consumer, of whom
-- there are few: the query steps from one to the next.
WITH RECURSIVE known (consumer) AS (
    SELECT min(consumer) FROM hapax_inbox_message
    UNION ALL
    SELECT (
        SELECT min(next.consumer) FROM hapax_inbox_message AS next
        WHERE next.consumer > known.consumer
    )
    FROM known
    WHERE known.consumer IS NOT NULL
)
SELECT taken.consumer, taken.message_id, taken.source,
       lower(hex(taken.payload_hash)) AS payload_hash, taken.received_at, taken.processed_at,
       taken.result
FROM known
CROSS JOIN hapax_inbox_message AS taken
    ON taken.consumer = known.consumer AND taken.message_id = ?1
WHERE (?2 IS NULL OR taken.consumer = ?2) AND (?3 IS NULL OR taken.source = ?3)
ORDER BY taken.consumer, taken.source
LIMIT ?4
