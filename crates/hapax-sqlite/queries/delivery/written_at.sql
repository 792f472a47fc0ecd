-- Reads when the event at a position was written.
-- Only here: the other store reads it as it counts.
SELECT created_at
FROM hapax_outbox_event
WHERE id = ?1
