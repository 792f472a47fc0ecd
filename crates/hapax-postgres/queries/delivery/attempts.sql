-- Reads every attempt at some deliveries, in order.
SELECT position, number, started_at, duration_ms, outcome, status, error, response_head
FROM hapax.attempt
WHERE position = ANY ($1::int8[]) AND destination = $2::text
ORDER BY id
