-- Reads when the event at a position was written.
SELECT created_at
FROM hapax_outbox_event
WHERE id = ?1
