-- Reads the rows of arrivals that may hold a position: each begins less than 8,192 below it.
-- Only here: the other store reads them with the attempts.
SELECT positions, started_at, duration_ms, status
FROM hapax_arrival
WHERE first > ?1 - 8192 AND first <= ?1 AND last >= ?1 AND part = ?2
ORDER BY first DESC
