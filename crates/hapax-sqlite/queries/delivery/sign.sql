-- Stores a node's heartbeat and the destinations that it knows.
-- Only here: the PostgreSQL store appends it in the statement that lists the live nodes.
INSERT INTO hapax_node (name, seen_at, destinations)
VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at, destinations = excluded.destinations
