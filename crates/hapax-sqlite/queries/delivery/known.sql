-- Lists the destinations known to nodes that sent a heartbeat since ?1, one destination per line.
-- Only here: the PostgreSQL store records absences in a function of its schema.
SELECT destinations
FROM hapax_node
WHERE seen_at > ?1 AND destinations IS NOT NULL
