-- Lists the deliveries that wait for an endpoint (?2) of a tenant (?1), those that are due first, at most
-- ?3.
SELECT event_id, type, attempt, next_at, created_at, last_error
FROM hapax_endpoint_delivery
WHERE tenant = ?1 AND endpoint = ?2 AND state = 'waiting'
ORDER BY next_at, id
LIMIT ?3
