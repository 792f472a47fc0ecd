-- Reads the latest events from a position (?1) on, at most ?2, the newest first.
-- Only here: the PostgreSQL store reads all recent activity in one statement.
SELECT id, tenant, created_at
FROM hapax_outbox_event
WHERE id >= ?1
ORDER BY id DESC
LIMIT ?2
