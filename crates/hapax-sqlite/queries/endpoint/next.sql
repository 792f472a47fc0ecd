-- Finds the next endpoint after an id (?1) for which a delivery waits.
-- Only here: the PostgreSQL store finds and claims deliveries in one statement.
SELECT endpoint
FROM hapax_endpoint_delivery
WHERE state = 'waiting' AND endpoint > ?1
ORDER BY endpoint
LIMIT 1
