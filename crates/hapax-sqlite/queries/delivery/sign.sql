-- Writes a node's sign of life down.
-- Only here: the other store appends it as it says who lives.
INSERT INTO hapax_node (name, seen_at)
VALUES (?1, ?2)
ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at
