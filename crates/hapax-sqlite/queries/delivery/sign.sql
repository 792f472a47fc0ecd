-- Writes a node's sign of life down, and what it knows.
-- Only here: the other store appends it as it says who lives.
INSERT INTO hapax_node (name, seen_at, knows)
VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at, knows = excluded.knows
