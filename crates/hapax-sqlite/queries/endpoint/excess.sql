-- Counts the deliveries that wait for an endpoint (?1), up to ?2.
-- Only here: the PostgreSQL store counts and ends deliveries in one statement.
SELECT count(*) AS number
FROM (
    SELECT 1
    FROM hapax_endpoint_delivery
    WHERE state = 'waiting' AND endpoint = ?1
    LIMIT ?2
)
