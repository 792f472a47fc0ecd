-- Forgets a node, and those that were silent for very long.
-- Only here: the other store empties a log of signs.
DELETE FROM hapax_node
WHERE name = ?1 OR seen_at < ?2
