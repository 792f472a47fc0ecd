-- Visits the events after an id (?1) and before another (?2), with what a filter and a shard need.
-- The caller stops when it has enough.
-- Only here: the PostgreSQL store does it in the statement that makes events due again.
SELECT id, event_id, type, tenant, aggregate_type, aggregate_id, created_at
FROM hapax_outbox_event
WHERE id > ?1 AND id < ?2
ORDER BY id
