-- Reads the latest first attempts that succeeded since a time (?1), at most ?2 rows, the latest
-- first.
-- Only here: the PostgreSQL store reads all recent activity in one statement.
SELECT partition, positions, started_at
FROM hapax_arrival INDEXED BY hapax_arrival_started
WHERE started_at >= ?1
ORDER BY started_at DESC
LIMIT ?2
