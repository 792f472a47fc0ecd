-- Deletes deliveries of an endpoint (?2) of a tenant (?1), at most ?3.
DELETE FROM hapax_endpoint_delivery
WHERE id IN (
    SELECT id
    FROM hapax_endpoint_delivery
    WHERE endpoint = ?2 AND tenant = ?1
    LIMIT ?3
)
