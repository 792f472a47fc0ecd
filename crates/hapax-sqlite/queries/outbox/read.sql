-- Reads on from a frontier, as far as it is stepped: the single writer commits in id order, so
-- nothing can appear behind it.
SELECT id, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
       created_at, available_at
FROM hapax_outbox_event
WHERE id > ?1
ORDER BY id
