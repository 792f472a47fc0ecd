-- Returns the highest position of an event that was purged.
-- Only here: the PostgreSQL store reads it in the statement that finds a start.
SELECT last
FROM hapax_outbox_purged
