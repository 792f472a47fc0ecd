-- Records that a polling endpoint was polled at a time (?3).
UPDATE hapax_poll_endpoint
SET last_polled_at = ?3
WHERE name = ?1 AND secret = ?2
