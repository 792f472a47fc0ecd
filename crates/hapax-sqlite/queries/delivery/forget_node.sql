-- Deletes a node, and all nodes without a heartbeat since ?2.
-- Only here: the PostgreSQL store deletes old rows from a log of heartbeats.
DELETE FROM hapax_node
WHERE name = ?1 OR seen_at < ?2
