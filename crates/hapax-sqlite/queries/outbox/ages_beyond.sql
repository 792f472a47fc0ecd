-- Walks the events beyond a frontier until one is found that is not settled.
SELECT id, created_at
FROM hapax_outbox_event
WHERE id > ?1
ORDER BY id
