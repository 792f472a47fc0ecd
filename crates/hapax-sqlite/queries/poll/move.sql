-- Moves the committed position of a polling endpoint (?1, ?2) to a position (?3) if it is where it was
-- read (?4).
UPDATE hapax_poll_endpoint
SET frontier = ?3, committed_at = ?5
WHERE name = ?1 AND secret = ?2 AND frontier = ?4
