-- Reads the event at a position, even if it is kept apart from its segment.
SELECT id, event_id::text, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
       created_at, available_at
FROM hapax.outbox_event
WHERE id = $1::int8
  AND segment IN ((($1::int8 >> 36) & 7)::int2, -1)
  AND ($2::text IS NULL OR tenant = $2::text)
