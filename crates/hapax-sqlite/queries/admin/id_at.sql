-- Reads the first event at or after a position, for the binary search of a point in time.
SELECT id, created_at
FROM hapax_outbox_event
WHERE id >= ?1
ORDER BY id
LIMIT 1
