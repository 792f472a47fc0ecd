-- Reads why a destination had been disabled, before opening it enables it again.
-- Only here: the other store reads it as it enables.
SELECT disabled_reason
FROM hapax_destination
WHERE name = ?1 AND disabled_at IS NOT NULL
