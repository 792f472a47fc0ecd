-- Finds the first event after a position (?1, inclusive) that was created at a time (?2) or later.
-- Only here: the PostgreSQL store searches for it in the statement that records a start.
SELECT id
FROM hapax_outbox_event
WHERE id >= ?1 AND created_at >= ?2
ORDER BY id
LIMIT 1
