-- Finds the sagas that one request began: those begun at or after a moment ($1) and before another
-- ($2) that say its key's short hash ($3) in a header, looking at so many ($5) and no more.
-- Only here: the other store has one process, and nobody beside it who operates.
SELECT id
FROM (
    SELECT id, tenant, headers, created_at
    FROM hapax.saga
    WHERE created_at >= $1::timestamptz
    ORDER BY created_at
    LIMIT $5::int8
) AS looked
WHERE created_at < $2::timestamptz
  AND strpos(headers, $3::text) > 0
  AND ($4::text IS NULL OR tenant = $4::text)
ORDER BY created_at, id
LIMIT $6::int8
