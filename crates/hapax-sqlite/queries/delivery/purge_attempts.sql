-- Deletes the attempts at a purged event.
DELETE FROM hapax_attempt
WHERE position = ?1
