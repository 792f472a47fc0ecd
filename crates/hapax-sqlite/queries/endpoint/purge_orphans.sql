-- Deletes deliveries of deleted endpoints, at most ?1.
DELETE FROM hapax_endpoint_delivery
WHERE id IN (
    SELECT delivery.id
    FROM hapax_endpoint AS endpoint
    JOIN hapax_endpoint_delivery AS delivery ON delivery.endpoint = endpoint.id
    WHERE endpoint.deleted_at IS NOT NULL
    LIMIT ?1
)
