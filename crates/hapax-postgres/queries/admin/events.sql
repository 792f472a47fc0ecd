-- Lists the events that match a filter, the newest first, and visits at most $10 rows: a filter
-- that matches nothing costs no more than one that matches everything.
SELECT id, event_id::text, type, tenant, aggregate_type, aggregate_id, sequence, created_at,
       available_at, octet_length(payload)::int8 AS payload_bytes
FROM (
    SELECT id, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, created_at,
           available_at
    FROM hapax.outbox_event
    WHERE id < $8::int8 AND id >= $9::int8
    ORDER BY id DESC
    LIMIT $10::int8
) AS looked
WHERE true
  AND ($1::text IS NULL OR type LIKE $1::text)
  AND ($2::text IS NULL OR tenant = $2::text)
  AND ($3::text IS NULL OR aggregate_type = $3::text)
  AND ($4::text IS NULL OR aggregate_id = $4::text)
  AND ($5::text IS NULL OR event_id = $5::text::uuid)
  AND ($6::timestamptz IS NULL OR created_at >= $6::timestamptz)
  AND ($7::timestamptz IS NULL OR created_at < $7::timestamptz)
ORDER BY id DESC
LIMIT $11::int8
