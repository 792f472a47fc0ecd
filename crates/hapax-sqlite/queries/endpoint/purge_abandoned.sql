-- Deletes deliveries that wait for an endpoint that was disabled before a time (?1), at most ?2.
DELETE FROM hapax_endpoint_delivery
WHERE id IN (
    SELECT delivery.id
    FROM hapax_endpoint AS endpoint
    JOIN hapax_endpoint_delivery AS delivery ON delivery.endpoint = endpoint.id
    WHERE delivery.state = 'waiting' AND endpoint.disabled_at < ?1
    LIMIT ?2
)
