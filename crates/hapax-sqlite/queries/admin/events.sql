-- Reads events from the newest to the oldest, before a position (?1) and not before another (?2).
-- The caller applies its filter and stops after a number of events: a filter that matches nothing
-- costs no more than one that matches everything.
SELECT id, event_id, type, tenant, aggregate_type, aggregate_id, created_at, available_at,
       octet_length(payload) AS payload_bytes
FROM hapax_outbox_event
WHERE id < ?1 AND id >= ?2
ORDER BY id DESC
