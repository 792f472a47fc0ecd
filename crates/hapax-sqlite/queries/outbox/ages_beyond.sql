-- Reads the events after a frontier; the caller stops at the first one that is not settled.
SELECT id, created_at
FROM hapax_outbox_event
WHERE id > ?1
ORDER BY id
