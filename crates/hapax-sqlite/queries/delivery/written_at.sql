-- Reads when the event at a position was written.
-- Only here: the PostgreSQL store reads it in the statement that counts.
SELECT created_at
FROM hapax_outbox_event
WHERE id = ?1
