-- Counts the endpoints of a tenant.
SELECT count(*) AS number
FROM hapax_endpoint
WHERE tenant = ?1 AND deleted_at IS NULL
