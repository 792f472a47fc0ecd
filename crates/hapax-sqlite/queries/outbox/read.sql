-- Reads the events after a frontier; the caller stops when it has enough. The single writer commits
-- in the order of ids, so no event can appear before the frontier later.
SELECT id, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
       created_at, available_at
FROM hapax_outbox_event
WHERE id > ?1
ORDER BY id
