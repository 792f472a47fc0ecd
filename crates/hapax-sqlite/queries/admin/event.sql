-- Reads the event at a position.
SELECT id, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
       created_at, available_at
FROM hapax_outbox_event
WHERE id = ?1 AND (?2 IS NULL OR tenant = ?2)
