-- Reads the event at a position, kept ones included.
-- Only here: the other store has one process, and nobody beside it who operates.
SELECT id, event_id::text, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
       created_at, available_at
FROM hapax.outbox_event
WHERE id = $1::int8
  AND segment IN ((($1::int8 >> 36) & 7)::int2, -1)
  AND ($2::text IS NULL OR tenant = $2::text)
