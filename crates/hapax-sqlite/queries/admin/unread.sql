-- Reads what decides to which partition an event belongs, and when it was written and became due, for
-- at most ?2 events after a frontier (?1).
-- Only here: the PostgreSQL store counts them in the statement that reads the partitions.
SELECT id, event_id, aggregate_type, aggregate_id, created_at,
       max(created_at, coalesce(available_at, created_at)) AS due_at
FROM hapax_outbox_event
WHERE id > ?1
ORDER BY id
LIMIT ?2
