-- Counts the endpoints of a tenant.
SELECT count(*) AS number
FROM hapax.endpoint
WHERE tenant = $1::text AND deleted_at IS NULL
