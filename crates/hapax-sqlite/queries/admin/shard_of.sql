-- Reads what decides to which partition an event (?1) belongs.
-- Only here: the PostgreSQL store has the shard in a column.
SELECT event_id, aggregate_type, aggregate_id
FROM hapax_outbox_event
WHERE id = ?1
