-- Reads the rows of arrivals that may contain a position: each row starts less than 8,192 positions
-- before it.
-- Only here: the PostgreSQL store reads arrivals together with the attempts.
SELECT positions, started_at, duration_ms, status
FROM hapax_arrival
WHERE first > ?1 - 8192 AND first <= ?1 AND last >= ?1 AND partition = ?2
ORDER BY first DESC
