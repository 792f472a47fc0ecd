-- Reads why a destination is disabled, before opening it enables it again.
-- Only here: the PostgreSQL store reads it in the statement that enables it.
SELECT disabled_reason
FROM hapax_destination
WHERE name = ?1 AND disabled_at IS NOT NULL
