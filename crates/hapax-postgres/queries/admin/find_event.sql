-- Finds an event by its id between two positions.
SELECT id, event_id::text, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
       created_at, available_at
FROM hapax.outbox_event
WHERE event_id = $1::text::uuid
  AND id >= $2::int8 AND id < $3::int8
  AND ($4::text IS NULL OR tenant = $4::text)
ORDER BY id
LIMIT 1
