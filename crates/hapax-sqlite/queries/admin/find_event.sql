-- Finds an event by its id between two positions.
SELECT id, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
       created_at, available_at
FROM hapax_outbox_event
WHERE event_id = ?1
  AND id >= ?2 AND id < ?3
  AND (?4 IS NULL OR tenant = ?4)
ORDER BY id
LIMIT 1
