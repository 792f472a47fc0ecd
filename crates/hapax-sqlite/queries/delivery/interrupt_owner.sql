-- Writes down whose attempt was cut off, and when that node had last shown that it lives.
-- Only here: the other store writes it as it interrupts.
UPDATE hapax_attempt SET
    owner = ?4,
    owner_seen_at = coalesce((SELECT seen_at FROM hapax_node WHERE name = ?4), 0)
WHERE position = ?1 AND destination = ?2 AND number = ?3 AND outcome = 'interrupted'
