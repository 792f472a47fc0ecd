-- Reads when the events after a frontier were written and became due, at most ?2 of them. An event is
-- due when it was written, unless it has to wait for a later time.
-- Only here: the PostgreSQL store computes the backlog in one statement.
SELECT id, created_at, max(created_at, coalesce(available_at, created_at)) AS due_at
FROM hapax_outbox_event
WHERE id > ?1
ORDER BY id
LIMIT ?2
