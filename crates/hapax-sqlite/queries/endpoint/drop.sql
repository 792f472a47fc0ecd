-- Ends the oldest deliveries that wait for an endpoint (?1), at most ?2, with a reason (?3).
UPDATE hapax_endpoint_delivery
SET state = 'failed', attempt = attempt + 1, ended_at = ?4, last_error = ?3
WHERE id IN (
    SELECT id
    FROM hapax_endpoint_delivery
    WHERE state = 'waiting' AND endpoint = ?1
    ORDER BY position, id
    LIMIT ?2
)
RETURNING tenant, event_id, position, type, attempt
