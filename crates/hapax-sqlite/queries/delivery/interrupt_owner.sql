-- Records which node's attempt was interrupted, and the time of that node's last heartbeat.
-- Only here: the PostgreSQL store records it in the statement that interrupts.
UPDATE hapax_attempt SET
    owner = ?4,
    owner_seen_at = coalesce((SELECT seen_at FROM hapax_node WHERE name = ?4), 0)
WHERE position = ?1 AND destination = ?2 AND number = ?3 AND outcome = 'interrupted'
