-- Reads the attempts at one delivery in order.
SELECT position, number, started_at, duration_ms, outcome, status, error, response_head
FROM hapax_attempt
WHERE position = ?1 AND destination = ?2
ORDER BY id
